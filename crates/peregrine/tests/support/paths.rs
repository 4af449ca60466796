//! Runs a test against a server on each path that needs no privileges.

use peregrine::Server;

/// Starts a server on each path, and calls `test` with the address of its export `name` there. `start`
/// returns the server, and a value that is passed to `test`.
pub(crate) fn on_each_path<T>(
    name: &str,
    start: impl Fn() -> (Server, T),
    test: impl Fn(&str, &T),
) {
    for path in ["local", "tcp", "udp"] {
        println!("{path}");
        let (server, needed) = start();
        let server = match path {
            "local" => server,
            _ => server.listen(&format!("{path}:127.0.0.1:0")).unwrap(),
        };
        let running = server.spawn().unwrap();
        let address = match running.addresses().first() {
            None => format!("local:{name}"),
            Some(endpoint) => format!("{endpoint}/{name}"),
        };
        test(&address, &needed);
        running.stop();
    }
}
