//! `examples/kustomize`: its manifests agree with each other, and a sidecar cannot take the web server out of service.

use std::collections::BTreeMap;
use std::path::Path;

use rsnotify::config::Config;
use rsnotify::config::address::Address;
use serde_json::Value;

use crate::examples::image::{self, IMAGE, USER};
use crate::examples::manifest::{command, configuration, named, text, texts, yaml};

const FILE: &str = "examples/kustomize/rsnotify.toml";

fn pod() -> Value {
    yaml("examples/kustomize/deployment.yaml")["spec"]["template"]["spec"].clone()
}

fn daemon(pod: &Value) -> Config {
    let mut variables = image::variables();
    for variable in named(&pod["initContainers"], "name", "rsnotify")["env"]
        .as_array()
        .unwrap()
    {
        let text = |key: &str| variable[key].as_str().unwrap().to_owned();
        variables.insert(text("name"), text("value"));
    }
    let token = "/etc/rsnotify/hub/token";
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
    lists.into_iter().flat_map(|list| list.as_array().unwrap())
}

#[test]
fn the_sidecar_is_probed_for_being_alive_and_for_nothing_else() {
    let pod = pod();
    let config = daemon(&pod);
    let sidecar = named(&pod["initContainers"], "name", "rsnotify");
    assert_eq!(sidecar["restartPolicy"], "Always");
    assert_eq!(sidecar["livenessProbe"]["httpGet"]["path"], "/healthz");
    for probe in ["readinessProbe", "startupProbe"] {
        assert!(sidecar[probe].is_null(), "{probe}");
    }
    // It is asked where it listens.
    let Address::Tcp(admin) = config.server.admin_listen else {
        panic!("{config:?}");
    };
    assert!(admin.ip().is_unspecified());
    let port = named(&sidecar["ports"], "name", "admin");
    assert_eq!(port["containerPort"], admin.port());
    assert_eq!(sidecar["livenessProbe"]["httpGet"]["port"], "admin");
    let deployment = yaml("examples/kustomize/deployment.yaml");
    let annotations = &deployment["spec"]["template"]["metadata"]["annotations"];
    assert_eq!(annotations["prometheus.io/port"], admin.port().to_string());
    assert_eq!(annotations["prometheus.io/path"], "/metrics");
}

#[test]
fn one_daemon_at_a_time_keeps_a_state_that_outlives_the_pod() {
    let deployment = yaml("examples/kustomize/deployment.yaml");
    assert_eq!(deployment["spec"]["replicas"], 1);
    assert_eq!(deployment["spec"]["strategy"]["type"], "Recreate");
    let pod = pod();
    let sidecar = named(&pod["initContainers"], "name", "rsnotify");
    assert_eq!(
        mounts(sidecar)["state"]["mountPath"],
        image::variables()["STATE_DIRECTORY"]
    );
    let claim = &named(&pod["volumes"], "name", "state")["persistentVolumeClaim"]["claimName"];
    assert_eq!(
        *claim,
        yaml("examples/kustomize/state.yaml")["metadata"]["name"]
    );
}

#[test]
fn the_web_server_passes_topics_on_to_the_sidecar() {
    let pod = pod();
    let config = daemon(&pod);
    let Address::Tcp(public) = config.server.listen else {
        panic!("{config:?}");
    };
    assert!(public.ip().is_loopback());
    let passed_on = format!("proxy_pass http://rsnotify:{};", public.port());
    assert!(text("examples/site/nginx.conf").contains(&passed_on));
    assert_eq!(texts(&pod["hostAliases"][0]["hostnames"]), ["rsnotify"]);
    assert_eq!(pod["hostAliases"][0]["ip"], public.ip().to_string());
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
    let pod = pod();
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
    assert_eq!(
        texts(&here["configMapGenerator"][0]["files"]),
        ["config.toml=rsnotify.toml"]
    );

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
        volume("rsnotify")["configMap"]["name"],
        here["configMapGenerator"][0]["name"]
    );
    assert_eq!(
        volume("hub")["secret"]["secretName"],
        here["secretGenerator"][0]["name"]
    );
    assert_eq!(
        volume("site")["configMap"]["name"],
        site["configMapGenerator"][0]["name"]
    );
    for container in containers(&pod) {
        for name in mounts(container).into_keys() {
            volume(name);
        }
    }
    // The token is where the file says.
    assert!(texts(&here["secretGenerator"][0]["literals"])[0].starts_with("token="));
    assert_eq!(mounts(sidecar)["hub"]["mountPath"], "/etc/rsnotify/hub");
    assert_eq!(
        mounts(sidecar)["rsnotify"]["mountPath"],
        "/etc/rsnotify/config.toml"
    );
}
