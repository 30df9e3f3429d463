//! Real message brokers from Debian's packages, on free ports and with data directories of their own.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;

use super::DEADLINE;
use super::needs;
use super::ports;

/// User of ActiveMQ who may write and read everything but topics below `forbidden`.
pub const USER: &str = "writer";
pub const PASSWORD: &str = "right";

/// ActiveMQ in a process of its own; killed when dropped.
pub struct ActiveMq {
    program: PathBuf,
    directory: TempDir,
    pub stomp: SocketAddr,
    pub openwire: SocketAddr,
    process: Option<Child>,
}

impl ActiveMq {
    /// Starts a broker; nothing where the package is missing, and the calling test is recorded as skipped.
    pub fn start() -> Option<ActiveMq> {
        needs::program("activemq")?;
        let mut broker = ActiveMq {
            program: needs::program("java")?,
            directory: TempDir::new().unwrap(),
            stomp: ports::reserved(),
            openwire: ports::reserved(),
            process: None,
        };
        fs::write(
            broker.directory.path().join("activemq.xml"),
            broker.configuration(),
        )
        .unwrap();
        broker.launch();
        Some(broker)
    }

    /// Starts the process, and waits until it takes connections.
    pub fn launch(&mut self) {
        let base = self.directory.path();
        let mut command = Command::new(&self.program);
        command
            .args(["-Xmx256m", "-Xshare:auto", "-XX:TieredStopAtLevel=1"])
            .arg("-Dactivemq.home=/usr/share/activemq")
            .arg(format!("-Dactivemq.base={}", base.display()))
            .arg(format!("-Dactivemq.data={}", base.join("data").display()))
            .args(["-jar", "/usr/share/activemq/bin/activemq.jar", "start"])
            .arg(format!(
                "xbean:file:{}",
                base.join("activemq.xml").display()
            ));
        self.process = Some(started(&mut command, base));
        for address in [self.openwire, self.stomp] {
            await_listener(address, base);
        }
    }

    /// As `kill -9` does.
    pub fn kill(&mut self) {
        kill(&mut self.process);
    }

    fn configuration(&self) -> String {
        let base = self.directory.path().display();
        format!(
            r#"<beans xmlns="http://www.springframework.org/schema/beans"
  xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
  xsi:schemaLocation="http://www.springframework.org/schema/beans http://www.springframework.org/schema/beans/spring-beans-2.0.xsd
  http://activemq.apache.org/schema/core http://activemq.apache.org/schema/core/activemq-core.xsd">
  <broker xmlns="http://activemq.apache.org/schema/core" useJmx="false" brokerName="test"
          dataDirectory="{base}/data" schedulerSupport="false">
    <persistenceAdapter><kahaDB directory="{base}/data/kahadb"/></persistenceAdapter>
    <plugins>
      <simpleAuthenticationPlugin><users>
        <authenticationUser username="{USER}" password="{PASSWORD}" groups="writers"/>
      </users></simpleAuthenticationPlugin>
      <authorizationPlugin><map><authorizationMap><authorizationEntries>
        <authorizationEntry topic="open.>" read="writers" write="writers" admin="writers"/>
        <authorizationEntry queue="open.>" read="writers" write="writers" admin="writers"/>
        <authorizationEntry topic="ActiveMQ.>" read="writers" write="writers" admin="writers"/>
        <authorizationEntry topic="forbidden.>" read="nobody" write="nobody" admin="nobody"/>
      </authorizationEntries></authorizationMap></map></authorizationPlugin>
    </plugins>
    <transportConnectors>
      <transportConnector name="stomp" uri="stomp://{}"/>
      <transportConnector name="openwire" uri="tcp://{}"/>
    </transportConnectors>
  </broker>
</beans>
"#,
            self.stomp, self.openwire
        )
    }
}

impl Drop for ActiveMq {
    fn drop(&mut self) {
        self.kill();
    }
}

/// RabbitMQ in a process of its own, with its STOMP plugin; killed when dropped. Its user `guest` may do everything.
pub struct RabbitMq {
    directory: TempDir,
    pub stomp: SocketAddr,
    /// The port that nodes are registered at, and what listens there: a node would start one that outlives it.
    port_mapper_port: u16,
    port_mapper: Option<Child>,
    distribution: u16,
    process: Option<Child>,
}

const RABBITMQ: &str = "/usr/lib/rabbitmq/bin/rabbitmq-server";

impl RabbitMq {
    /// Starts a broker; nothing where the package is missing, and the calling test is recorded as skipped.
    pub fn start() -> Option<RabbitMq> {
        needs::program("rabbitmq-server")?;
        let mut broker = RabbitMq {
            directory: TempDir::new().unwrap(),
            stomp: ports::reserved(),
            port_mapper_port: ports::reserved().port(),
            port_mapper: None,
            distribution: ports::reserved().port(),
            process: None,
        };
        let base = broker.directory.path();
        let configuration = format!(
            "listeners.tcp = none\nstomp.listeners.tcp.1 = {}\nloopback_users = none\n",
            broker.stomp
        );
        fs::write(base.join("rabbitmq.conf"), configuration).unwrap();
        fs::write(base.join("enabled_plugins"), "[rabbitmq_stomp].").unwrap();
        let port = broker.port_mapper_port;
        let mut port_mapper = Command::new("epmd");
        port_mapper.args(["-address", "127.0.0.1", "-port", &port.to_string()]);
        broker.port_mapper = Some(started(&mut port_mapper, base));
        await_listener(([127, 0, 0, 1], port).into(), base);
        broker.launch();
        Some(broker)
    }

    /// Starts the process, and waits until it takes connections.
    pub fn launch(&mut self) {
        let base = self.directory.path();
        let at = |name: &str| base.join(name).display().to_string();
        let mut command = Command::new(RABBITMQ);
        command
            .env("HOME", base)
            .env("ERL_EPMD_PORT", self.port_mapper_port.to_string())
            .env("ERL_EPMD_ADDRESS", "127.0.0.1")
            .env("RABBITMQ_NODENAME", "rsnotify@localhost")
            .env("RABBITMQ_DIST_PORT", self.distribution.to_string())
            .env("RABBITMQ_MNESIA_BASE", at("mnesia"))
            .env("RABBITMQ_LOG_BASE", at("log"))
            .env("RABBITMQ_CONFIG_FILE", at("rabbitmq.conf"))
            .env("RABBITMQ_ENABLED_PLUGINS_FILE", at("enabled_plugins"))
            .env("RABBITMQ_CONF_ENV_FILE", "/dev/null")
            .env("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", "+S 1:1 +sbwt none")
            .process_group(0);
        self.process = Some(started(&mut command, base));
        await_listener(self.stomp, base);
    }

    /// As `kill -9` does: the start script and the node are a process group of their own.
    pub fn kill(&mut self) {
        if let Some(process) = &self.process {
            let group = Pid::from_child(process);
            let _ = kill_process_group(group, Signal::KILL);
        }
        kill(&mut self.process);
    }
}

impl Drop for RabbitMq {
    fn drop(&mut self) {
        self.kill();
        kill(&mut self.port_mapper);
    }
}

/// Classes that a consumer over JMS is compiled against and runs with.
pub const CLASSES: [&str; 5] = [
    "/usr/share/java/activemq-client.jar",
    "/usr/share/activemq/lib/geronimo-jms_1.1_spec.jar",
    "/usr/share/activemq/lib/geronimo-j2ee-management-1.1-spec.jar",
    "/usr/share/activemq/lib/slf4j-api.jar",
    "/usr/share/activemq/lib/hawtbuf.jar",
];

fn started(command: &mut Command, directory: &Path) -> Child {
    let log = fs::File::create(directory.join("output")).unwrap();
    command
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap()
}

fn kill(process: &mut Option<Child>) {
    if let Some(mut process) = process.take() {
        let _ = process.kill();
        let _ = process.wait();
    }
}

fn await_listener(address: SocketAddr, directory: &Path) {
    let deadline = Instant::now() + DEADLINE;
    while TcpStream::connect(address).is_err() {
        let output = || fs::read_to_string(directory.join("output")).unwrap_or_default();
        assert!(Instant::now() < deadline, "{}", output());
        std::thread::sleep(Duration::from_millis(50)); // poll: nothing says it
    }
}
