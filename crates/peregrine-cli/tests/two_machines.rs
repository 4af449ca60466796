//! Tests that the commands of README.md alone set up two machines, which are network namespaces here: keys, a
//! server that listens beyond its machine, and an encrypted copy of a file.

mod sandbox;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::{Command, Stdio};

use sandbox::{Done, Process, Sandbox};

/// The addresses in README.md, and one for the client.
const ADDRESSES: [&str; 2] = ["192.0.2.1", "192.0.2.2"];

/// A command line of README.md.
struct Line {
    is_server: bool,
    text: String,
}

fn lines() -> Vec<Line> {
    let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md");
    let text = fs::read_to_string(readme).unwrap();
    let commands = text.lines().filter_map(|line| {
        let (prompt, text) = line.trim_start().split_once("$ ")?;
        let is_server = match prompt {
            "server" => true,
            "client" => false,
            _ => return None,
        };
        Some(Line { is_server, text: text.to_owned() })
    });
    commands.collect()
}

/// Two network namespaces with a link between them. They are removed on drop.
struct Machines {
    names: [String; 2],
    homes: [Sandbox; 2],
}

impl Machines {
    fn new() -> Result<Self, String> {
        let names = ["server", "client"].map(|end| format!("pg-{end}-{}", std::process::id()));
        let machines = Self { names, homes: [Sandbox::new(), Sandbox::new()] };
        let [server, client] = &machines.names;
        let mut commands = vec![
            format!("netns add {server}"),
            format!("netns add {client}"),
            format!("-n {server} link add pg-a type veth peer name pg-b netns {client}"),
        ];
        for (name, interface, address) in
            [(server, "pg-a", ADDRESSES[0]), (client, "pg-b", ADDRESSES[1])]
        {
            commands.push(format!("-n {name} link set lo up"));
            commands.push(format!("-n {name} address add {address}/24 dev {interface}"));
            commands.push(format!("-n {name} link set {interface} up"));
        }
        for command in commands {
            let output = Command::new("ip").args(command.split(' ')).output();
            let output = output.map_err(|error| format!("ip: {error}"))?;
            if !output.status.success() {
                let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                return Err(format!("ip {command}: {said}"));
            }
        }
        machines.install();
        Ok(machines)
    }

    /// Puts `peregrine` into the path of both machines, and an `ssh` that runs commands at the server.
    fn install(&self) {
        for home in &self.homes {
            fs::create_dir(home.path("bin")).unwrap();
            symlink(env!("CARGO_BIN_EXE_peregrine"), home.path("bin/peregrine")).unwrap();
        }
        let ssh = self.homes[1].path("bin/ssh");
        let [server, _] = &self.names;
        let (home, run) = (self.homes[0].0.path().display().to_string(), self.homes[0].path("run"));
        let script = format!(
            "#!/bin/sh\nshift\nexport HOME={home} PEREGRINE_DIR={run} PATH={home}/bin:$PATH\n\
             cd {home} && exec ip netns exec {server} sh -c \"$*\"\n"
        );
        fs::write(&ssh, script).unwrap();
        fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn command(&self, line: &Line) -> Command {
        let end = usize::from(!line.is_server);
        let home = &self.homes[end];
        let path = format!("{}:{}", home.path("bin"), std::env::var("PATH").unwrap());
        let mut command = Command::new("ip");
        // The shell is replaced by a single command, so that a signal reaches it.
        let text = match line.text.contains('|') {
            true => line.text.clone(),
            false => format!("exec {}", line.text),
        };
        command.args(["netns", "exec", &self.names[end], "sh", "-c", &text]);
        command.stdin(Stdio::null()).current_dir(home.0.path());
        command.env("HOME", home.0.path()).env("PEREGRINE_DIR", home.path("run"));
        command.env("PATH", path);
        for name in ["XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "PEREGRINE_HOSTS", "PEREGRINE_KEYS"] {
            command.env_remove(name);
        }
        command.env_remove("PEREGRINE_KEY_LOG");
        command
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

#[test]
fn commands_of_the_readme_set_up_two_machines() {
    let machines = match Machines::new() {
        Ok(machines) => machines,
        Err(why) => return println!("skipped: {why}"),
    };
    let photos = machines.homes[0].path("photos");
    fs::create_dir(&photos).unwrap();
    fs::write(format!("{photos}/hello.txt"), "hello from afar").unwrap();
    let lines = lines();
    assert!(lines.iter().any(|line| line.text.contains("--beyond-this-machine")), "a server");
    let mut servers = Vec::new();
    for line in &lines {
        let mut command = machines.command(line);
        if !line.text.contains(" serve ") {
            let done = Done::of(&command.output().unwrap());
            assert_eq!(done.code, 0, "{}: {done:?}", line.text);
            continue;
        }
        let server = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let mut server = Process(server.unwrap());
        let mut said = BufReader::new(server.0.stderr.take().unwrap()).lines();
        let ready = said.find(|line| line.as_ref().unwrap().contains("and at "));
        let ready = ready.expect("the server listens").unwrap();
        assert!(ready.contains("(encrypted"), "{ready}");
        servers.push((server, said));
    }
    let copied = machines.homes[1].path("hello.txt");
    assert_eq!(fs::read_to_string(copied).unwrap(), "hello from afar");
    // Without the key, the same command is refused.
    let last = lines.last().unwrap();
    let text = last.text.replace(" --identity", "").replace(" .", " other.txt");
    let done = Done::of(&machines.command(&Line { text, ..*last }).output().unwrap());
    assert_eq!(done.code, 3, "{done:?}");
}
