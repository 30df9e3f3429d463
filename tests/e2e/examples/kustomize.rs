//! `examples/kustomize`: its manifests agree with each other, and a sidecar cannot take the web server out of service.

use std::collections::BTreeMap;
use std::path::Path;

use rsnotify::config::Config;
use rsnotify::config::text::Address;
use serde_json::Value;

use crate::examples::manifest::{
    IMAGE, USER, command, configuration, named, ports, text, texts, variables, yaml,
};
use crate::support::daemon::assert_contains;

const FILE: &str = "examples/kustomize/rsnotify.toml";

const DEPLOYMENTS: [&str; 3] = ["deployment", "hub", "listen"];

/// The pod of the deployment in a file.
fn pod_of(file: &str) -> Value {
    yaml(&format!("examples/kustomize/{file}.yaml"))["spec"]["template"]["spec"].clone()
}

fn pod() -> Value {
    pod_of("deployment")
}

fn daemon(pod: &Value) -> Config {
    let mut variables = variables();
    for variable in named(&pod["initContainers"], "name", "rsnotify")["env"]
        .as_array()
        .unwrap()
    {
        let text = |key: &str| variable[key].as_str().unwrap().to_owned();
        variables.insert(text("name"), text("value"));
    }
    let token = "/etc/rsnotify/hub.token";
    configuration(&command(&["run"], &variables), FILE, Some(token))
}

fn mounts(container: &Value) -> BTreeMap<&str, &Value> {
    let mounts = container["volumeMounts"].as_array().unwrap().iter();
    mounts
        .map(|mount| (mount["name"].as_str().unwrap(), mount))
        .collect()
}

/// Every container of the pod.
fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    let lists = [&pod["initContainers"], &pod["containers"]];
    lists.into_iter().filter_map(Value::as_array).flatten()
}

#[test]
fn one_sidecar_is_probed_for_being_alive_and_keeps_a_state_that_outlives_the_pod() {
    let pod = pod();
    let config = daemon(&pod);
    let sidecar = named(&pod["initContainers"], "name", "rsnotify");
    assert_eq!(sidecar["restartPolicy"], "Always");
    assert_eq!(sidecar["livenessProbe"]["httpGet"]["path"], "/healthz");
    for probe in ["readinessProbe", "startupProbe"] {
        assert!(sidecar[probe].is_null(), "{probe}");
    }
    // It is asked where it listens.
    let Address::Tcp(admin) = config.server.admin_listen.0 else {
        panic!("{config:?}");
    };
    assert!(admin.ip().is_unspecified());
    let port = named(&sidecar["ports"], "name", "admin");
    assert_eq!(port["containerPort"], admin.port());
    assert_eq!(sidecar["livenessProbe"]["httpGet"]["port"], "admin");
    let deployment = &yaml("examples/kustomize/deployment.yaml")["spec"];
    let annotations = &deployment["template"]["metadata"]["annotations"];
    assert_eq!(annotations["prometheus.io/port"], admin.port().to_string());
    assert_eq!(annotations["prometheus.io/path"], "/metrics");
    // One daemon at a time keeps a state that outlives the pod.
    assert_eq!(deployment["replicas"], 1);
    assert_eq!(deployment["strategy"]["type"], "Recreate");
    let state = mounts(sidecar)["state"];
    assert_eq!(state["mountPath"], variables()["STATE_DIRECTORY"]);
    let claim = &named(&pod["volumes"], "name", "state")["persistentVolumeClaim"]["claimName"];
    let state = yaml("examples/kustomize/state.yaml");
    assert_eq!(*claim, state["metadata"]["name"]);
}

#[test]
fn the_web_server_passes_topics_on_to_the_sidecar() {
    let pod = pod();
    let config = daemon(&pod);
    let Address::Tcp(public) = config.server.listen.0 else {
        panic!("{config:?}");
    };
    assert!(public.ip().is_loopback());
    let passed_on = format!("proxy_pass http://{public};");
    assert!(text("examples/site/nginx.conf").contains(&passed_on));
    let web = named(&pod["containers"], "name", "web");
    let port = &named(&web["ports"], "name", "http")["containerPort"];
    assert!(text("examples/site/nginx.conf").contains(&format!("listen {port};")));
    let service = yaml("examples/kustomize/service.yaml");
    assert_eq!(service["spec"]["ports"][0]["targetPort"], "http");
    let labels =
        &yaml("examples/kustomize/deployment.yaml")["spec"]["template"]["metadata"]["labels"];
    assert_eq!(service["spec"]["selector"], *labels);
}

#[test]
fn the_tree_is_published_as_it_is_announced() {
    let pod = pod();
    let config = daemon(&pod);
    let mount = &config.sources[0].mount[0];
    let url = config.server.public_url.as_ref().unwrap();
    assert_eq!(&mount.prefix, url);
    let tree = mount.directory.to_str().unwrap();
    let generator = named(&pod["containers"], "name", "generator");
    assert_eq!(texts(&generator["command"])[2..], [tree, url.as_str()]);
    assert_eq!(texts(&generator["args"])[0], config.hubs[0].hub.as_str());
    for container in containers(&pod) {
        let mounted = mounts(container);
        assert_eq!(mounted["tree"]["mountPath"], tree);
        let is_read_only = mounted["tree"]["readOnly"] == true;
        assert_eq!(
            is_read_only,
            container["name"] != "generator",
            "{container}"
        );
    }
}

#[test]
fn nothing_may_more_than_it_must() {
    for file in DEPLOYMENTS {
        let pod = pod_of(file);
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
        assert_eq!(pod["securityContext"]["runAsUser"].to_string(), USER);
        assert_eq!(pod["automountServiceAccountToken"], false);
        for container in containers(&pod) {
            let context = &container["securityContext"];
            assert_eq!(context["readOnlyRootFilesystem"], true, "{container}");
            assert_eq!(context["allowPrivilegeEscalation"], false, "{container}");
            assert_eq!(
                texts(&context["capabilities"]["drop"]),
                ["ALL"],
                "{container}"
            );
        }
    }
}

#[test]
fn a_changed_configuration_arrives_in_the_pods() {
    for (file, map) in [("deployment", "rsnotify"), ("hub", "hub")] {
        let pod = pod_of(file);
        // A file that is mounted with it never changes.
        assert!(!text(&format!("examples/kustomize/{file}.yaml")).contains("subPath"));
        let sources = &named(&pod["volumes"], "name", map)["projected"]["sources"];
        assert_eq!(sources[0]["configMap"]["name"], map);
        assert_eq!(sources[1]["secret"]["name"], "hub-token");
        let container = containers(&pod).find(|container| container["name"] == map);
        assert_eq!(
            mounts(container.unwrap())[map]["mountPath"],
            "/etc/rsnotify"
        );
    }
}

#[test]
fn hub_and_destination_are_where_the_site_says() {
    let config = daemon(&pod());
    let hub = &pod_of("hub")["containers"][0];
    let listen = &pod_of("listen")["containers"][0];
    for (container, arguments) in [(hub, "hub"), (listen, "listen")] {
        assert_eq!(container["image"], "localhost/rsnotify");
        assert_eq!(texts(&container["args"])[0], arguments);
    }
    let own = text("examples/kustomize/hub.toml");
    for part in [
        format!("url = \"{}\"", config.hubs[0].hub),
        format!("topics = [\"{}\"]", config.server.public_url.unwrap()),
        "bearer_token_file = \"/etc/rsnotify/hub.token\"".to_owned(),
    ] {
        assert_contains(&own, &part);
    }
    let port = &named(&hub["ports"], "name", "hub")["containerPort"];
    assert_eq!(ports(), [port.to_string()]);
}

#[test]
fn everything_that_is_named_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/kustomize");
    let here = yaml("examples/kustomize/kustomization.yaml");
    for resource in texts(&here["resources"]) {
        assert!(root.join(resource).exists(), "{resource}");
    }
    let site = yaml("examples/site/kustomization.yaml");
    for file in texts(&site["configMapGenerator"][0]["files"]) {
        assert!(root.join("../site").join(file).exists(), "{file}");
    }
    for (map, file) in [("rsnotify", "rsnotify.toml"), ("hub", "hub.toml")] {
        let files = &named(&here["configMapGenerator"], "name", map)["files"];
        assert_eq!(texts(files), [format!("config.toml={file}")]);
        assert!(root.join(file).exists(), "{file}");
    }

    let pod = pod();
    let sidecar = named(&pod["initContainers"], "name", "rsnotify");
    let image = &here["images"][0];
    assert_eq!(sidecar["image"], image["name"]);
    let named_image = format!(
        "{}:{}",
        image["name"].as_str().unwrap(),
        image["newTag"].as_str().unwrap()
    );
    assert_eq!(named_image, IMAGE);

    let volume = |name: &str| named(&pod["volumes"], "name", name);
    assert_eq!(
        volume("site")["configMap"]["name"],
        site["configMapGenerator"][0]["name"]
    );
    for container in containers(&pod) {
        for name in mounts(container).into_keys() {
            volume(name);
        }
    }
    // The token is where the files say, and made by a command of the page.
    let made = "rsnotify token site | sed -n '2s/# //p' | kubectl create secret generic hub-token --from-file=hub.token=";
    assert!(text("docs/container.md").contains(made));
}
