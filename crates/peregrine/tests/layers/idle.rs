//! Tests what layers cost: no allocations, and almost nothing while they are idle.

use super::support::heap::fewest_allocations;
use super::*;

#[test]
fn layers_themselves_allocate_nothing_for_a_call() {
    struct Times;
    impl Layer for Times {
        type State = (std::time::Instant, [u64; 4]);
        fn begin(&self, _: &mut LayerCall<'_>) -> Result<Self::State, LayerRefusal> {
            Ok((std::time::Instant::now(), [7; 4]))
        }
        fn end(&self, (_, kept): Self::State, _: &LayerEnd<'_>) {
            assert_eq!(kept, [7; 4]);
        }
    }
    let _alone = alone();
    let _directory = own_directory();
    let server = Server::new().layer(Times).layer(Times);
    let running = server.export("work", WorkServer::new(Object::default())).unwrap();
    let running = running.listen("tcp:127.0.0.1:0").unwrap().spawn().unwrap();
    for at in ["local:work".to_owned(), address(&running)] {
        let work = client(&at, BindOptions::default().layer(Times).layer(Times));
        let fewest = fewest_allocations(|| assert_eq!(work.add(1, 2).unwrap(), 3));
        assert_eq!(fewest, 0, "{at}");
    }
    running.stop();
}

/// Writes to a log, and is idle at one side or at both.
struct Idle {
    writes: Writes,
    sides: &'static [LayerSide],
}

impl Layer for Idle {
    type State = String;

    fn begin(&self, call: &mut LayerCall<'_>) -> Result<String, LayerRefusal> {
        self.writes.begin(call)
    }
    fn end(&self, state: String, end: &LayerEnd<'_>) {
        self.writes.end(state, end);
    }
    fn is_idle(&self, side: LayerSide) -> bool {
        self.sides.contains(&side)
    }
}

#[test]
fn idle_layers_see_only_calls_with_metadata() {
    const BOTH: &[LayerSide] = &[LayerSide::Client, LayerSide::Server];
    let _alone = alone();
    let _directory = own_directory();
    let log = Log::default();
    let idle = |name, sides| Idle { writes: writes(name, &log), sides };
    for path in ["local", "tcp", "udp"] {
        println!("{path}");
        let server = Server::new().layer(idle("server", BOTH));
        let server = server.export("work", WorkServer::new(Object::default())).unwrap();
        let asynchronous = WorkAsyncServer::new(AsyncObject);
        let server = server.export("awork", asynchronous).unwrap();
        let listener = ExportOptions::default().layer(idle("export", &[LayerSide::Server]));
        let server =
            server.export_with("back", WorkServer::new(Object::default()), listener).unwrap();
        let running = match path {
            "local" => server.spawn().unwrap(),
            _ => server.listen(&format!("{path}:127.0.0.1:0")).unwrap().spawn().unwrap(),
        };
        for name in ["work", "awork"] {
            let at = match running.addresses().first() {
                None => format!("local:{name}"),
                Some(endpoint) => format!("{endpoint}/{name}"),
            };
            let work = client(&at, BindOptions::default().layer(idle("client", BOTH)));
            let awaited = WorkAsyncClient::from(work.clone());
            assert_eq!(work.add(2, 3).unwrap(), 5);
            assert_eq!(block_on(WorkAsync::add(&awaited, 2, 3)).unwrap(), 5);
            assert_eq!(work.fails().unwrap_err().kind(), Kind::Relayed);
            assert_eq!(work.panics().unwrap_err().kind(), Kind::Panicked);
            assert_eq!(log.take(), [""; 0]);
            let told = work.with_metadata("key", "value").unwrap();
            assert_eq!(told.add(2, 3).unwrap(), 5);
            let seen = ["client calls add", "server serves add"];
            let ended = ["server ended add ok", "client ended add ok"];
            assert_eq!(log.take(), [seen, ended].concat());
            // A call after a call with metadata carries none.
            assert_eq!(work.add(2, 3).unwrap(), 5);
            assert_eq!(log.take(), [""; 0]);
        }
        // A layer of the export is not idle for the calls that a procedure makes.
        let at = address(&running).replace("/work", "/back").replace(":work", ":back");
        let work = client(&at, BindOptions::default());
        let listener = Object::default();
        assert_eq!(work.back(Callback::new(&listener)).unwrap(), 2);
        let told = ["server calls told", "export calls told"];
        let ended = ["export ended told ok", "server ended told ok"];
        assert_eq!(log.take(), [told, ended, told, ended].concat());
        running.stop();
    }
}
