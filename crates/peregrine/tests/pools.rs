//! Pools: many servers of one name, which come, go, drain and fail while clients call them.

mod support;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use peregrine::directory::{Directory, Offer, Offers, Standing, Watcher};
use peregrine::server_info::{ServerInfo as _, ServerInfoClient};
use peregrine::{
    Address, Balance, BindOptions, CallError, Executed, ExportOptions, Kind, PathKind,
    PoolStanding, Rebind, Running, Server, interface,
};
use support::{KeepGoing, alone, own_directory, until};

/// How long procedures may run while a server stops.
const LIMIT: Duration = Duration::from_secs(60);

#[interface]
trait Desk {
    /// Returns the number of the desk.
    #[idempotent]
    fn number(&self) -> peregrine::Result<u32>;
    /// Notes that a call ran, and returns the number of the desk.
    fn count(&self, call: u64) -> peregrine::Result<u32>;
    /// Notes a call.
    #[oneway]
    fn note(&self, call: u64) -> peregrine::Result<()>;
    /// Waits until the desk is open. Returns its number.
    fn wait(&self) -> peregrine::Result<u32>;
    /// As `wait`.
    #[idempotent]
    fn look(&self) -> peregrine::Result<u32>;
}

/// Which calls have run, at any desk.
#[derive(Default)]
struct Ran {
    counts: Mutex<HashMap<u64, u32>>,
    notes: Mutex<Vec<(u32, u64)>>,
    /// The calls that wait at any desk.
    waiting: AtomicU64,
    /// Whether such calls go on.
    open: AtomicBool,
}

struct Numbered(u32, Arc<Ran>);

impl Desk for Numbered {
    fn number(&self) -> peregrine::Result<u32> {
        Ok(self.0)
    }
    fn count(&self, call: u64) -> peregrine::Result<u32> {
        *self.1.counts.lock().unwrap().entry(call).or_default() += 1;
        Ok(self.0)
    }
    fn note(&self, call: u64) -> peregrine::Result<()> {
        self.1.notes.lock().unwrap().push((self.0, call));
        Ok(())
    }
    fn wait(&self) -> peregrine::Result<u32> {
        self.1.waiting.fetch_add(1, Ordering::AcqRel);
        until("the desk is open", || self.1.open.load(Ordering::Acquire));
        Ok(self.0)
    }
    fn look(&self) -> peregrine::Result<u32> {
        self.wait()
    }
}

/// A directory whose contents the test sets.
#[derive(Clone, Default)]
struct Board(Arc<Mutex<Posted>>);

#[derive(Default)]
struct Posted {
    offers: Vec<Offer>,
    watchers: Vec<(u64, Watcher)>,
    /// How many watches have begun, and how many questions were asked.
    watches: u64,
    questions: u64,
}

impl std::fmt::Debug for Board {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Board")
    }
}

impl Board {
    fn post<'a>(&self, desks: impl IntoIterator<Item = &'a At>) {
        let offers: Vec<_> = desks.into_iter().map(|desk| desk.offer.clone()).collect();
        let mut posted = self.0.lock().unwrap();
        posted.offers.clone_from(&offers);
        for (_, watcher) in &mut posted.watchers {
            watcher(Offers::of(offers.clone()));
        }
    }

    fn options(&self) -> BindOptions {
        BindOptions::default().directory(self.clone())
    }

    fn pool(&self, balance: Balance) -> DeskPool {
        let pool = DeskPool::bind_with("desk", &self.options().balance(balance)).unwrap();
        let posted = self.0.lock().unwrap().offers.len();
        used(&pool, posted);
        pool
    }
}

impl Directory for Board {
    fn offers(&self, name: &str) -> Result<Vec<Address>, CallError> {
        Ok(self.look_up(name)?.addresses().cloned().collect())
    }
    fn describe(&self) -> String {
        "the board of a test".to_owned()
    }
    fn look_up(&self, _: &str) -> Result<Offers, CallError> {
        let mut posted = self.0.lock().unwrap();
        posted.questions += 1;
        Ok(Offers::of(posted.offers.clone()))
    }
    fn watch(&self, _: &str, mut watcher: Watcher) -> Result<Standing, CallError> {
        let mut posted = self.0.lock().unwrap();
        watcher(Offers::of(posted.offers.clone()));
        let key = posted.watches;
        posted.watches += 1;
        posted.watchers.push((key, watcher));
        let board = Arc::clone(&self.0);
        let end = move || board.lock().unwrap().watchers.retain(|one| one.0 != key);
        Ok(Standing::new(end, || None))
    }
}

/// A desk, and its offer.
struct At {
    offer: Offer,
    running: Option<Running>,
}

impl At {
    /// Starts a desk. Networks only can call it, so that several fit on one machine.
    fn new(number: u32, ran: &Arc<Ran>) -> Self {
        Self::over("tcp", number, ran)
    }

    fn over(path: &str, number: u32, ran: &Arc<Ran>) -> Self {
        Self::serving(path, number, DeskServer::new(Numbered(number, Arc::clone(ran))))
    }

    fn serving(path: &str, number: u32, serve: impl peregrine::call::Serve + 'static) -> Self {
        Self::with(Server::new(), path, number, serve)
    }

    fn with(
        server: Server,
        path: &str,
        number: u32,
        serve: impl peregrine::call::Serve + 'static,
    ) -> Self {
        let options = ExportOptions::default().networks_only();
        let server = server.export_with("desk", serve, options).unwrap();
        let running = server.listen(&format!("{path}:127.0.0.1:0")).unwrap().spawn().unwrap();
        let address = running.addresses()[0].to_string();
        let address = address.replace(&format!("{path}:"), &format!("{path}:desk@"));
        let offer = Offer::new(&format!("desk{number:02}"), [address]).unwrap();
        Self { offer, running: Some(running) }
    }

    fn drain(&mut self) {
        assert!(self.running.take().unwrap().drain(LIMIT));
    }
}

/// Waits until a pool uses this number of servers, and is binding to no other one.
fn used(pool: &DeskPool, count: usize) {
    until("the pool uses the servers", || {
        let servers = pool.servers();
        let standing = |what| servers.iter().filter(|one| one.standing == what).count();
        standing(PoolStanding::Used) == count && standing(PoolStanding::Binding) == 0
    });
}

/// Returns how many of the next calls each desk answers.
fn answers(pool: &impl Desk, calls: usize) -> HashMap<u32, usize> {
    let mut answers = HashMap::new();
    for _ in 0..calls {
        *answers.entry(pool.number().unwrap()).or_default() += 1;
    }
    answers
}

fn desks(count: u32) -> (Board, Arc<Ran>, Vec<At>) {
    let (board, ran) = (Board::default(), Arc::default());
    let desks: Vec<_> = (0..count).map(|number| At::new(number, &ran)).collect();
    board.post(&desks);
    (board, ran, desks)
}

#[test]
fn calls_are_spread_as_the_balance_says() {
    let _directory = own_directory();
    let (board, _, _desks) = desks(3);
    let in_turn = board.pool(Balance::RoundRobin);
    assert_eq!(answers(&in_turn, 300), HashMap::from([(0, 100), (1, 100), (2, 100)]));
    let random = answers(&board.pool(Balance::Random), 300);
    assert!(random.len() == 3 && random.values().all(|count| *count > 50), "{random:?}");
    let first = board.pool(Balance::First);
    assert_eq!(answers(&first, 10), HashMap::from([(0, 10)]));
    let owners: Vec<_> = (0..20)
        .map(|key| {
            let pool = board.pool(Balance::Key(format!("user {key}")));
            let owner = answers(&pool, 3);
            assert_eq!(owner.len(), 1, "calls with one key go to one server");
            assert_eq!(answers(&board.pool(Balance::Key(format!("user {key}"))), 3), owner);
            *owner.keys().next().unwrap()
        })
        .collect();
    assert!((0..3).all(|desk| owners.contains(&desk)), "{owners:?}");
}

/// A client of one server chooses it when it binds.
#[test]
fn client_binds_to_the_server_that_the_balance_says() {
    let _directory = own_directory();
    let (board, ran, all) = desks(3);
    let bound =
        |options: &BindOptions| DeskClient::bind_with("desk", options).unwrap().number().unwrap();
    let several = |balance: Balance, count: usize| {
        let options = board.options().balance(balance);
        (0..count).map(|_| bound(&options)).collect::<Vec<_>>()
    };
    assert_eq!((0..5).map(|_| bound(&board.options())).collect::<Vec<_>>(), [0; 5], "in order");
    assert_eq!(several(Balance::First, 5), [0; 5]);
    let in_turn = several(Balance::RoundRobin, 6);
    assert!(in_turn.windows(2).all(|two| two[1] == (two[0] + 1) % 3), "{in_turn:?}");
    let random = several(Balance::Random, 60);
    assert!((0..3).all(|desk| random.contains(&desk)), "{random:?}");
    for key in 0..10 {
        let key = Balance::Key(format!("user {key}"));
        let pool = board.pool(key.clone());
        assert_eq!(several(key, 3), [pool.number().unwrap(); 3], "pools choose as clients do");
    }
    // A server of a low priority is chosen only if no other one can be reached.
    let mut offers: Vec<_> = all.iter().map(|desk| desk.offer.clone()).collect();
    offers[0] = offers[0].clone().with_priority(1);
    board.0.lock().unwrap().offers = offers[..2].to_vec();
    for balance in [Balance::First, Balance::Random, Balance::LeastLoaded] {
        assert_eq!(several(balance, 5), [1; 5]);
    }
    // With two servers, the two random choices are always both servers.
    board.0.lock().unwrap().offers = offers[1..].to_vec();
    let busy = DeskClient::bind_with("desk", &board.options()).unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| busy.wait().unwrap());
        until("the call runs", || ran.waiting.load(Ordering::Acquire) == 1);
        assert_eq!(several(Balance::LeastLoaded, 10), [2; 10]);
        ran.open.store(true, Ordering::Release);
        assert_eq!(waits.join().unwrap(), 1);
    });
}

#[test]
fn busy_server_gets_no_calls_while_another_is_idle() {
    let _directory = own_directory();
    let (board, ran, _desks) = desks(2);
    let pool = board.pool(Balance::LeastLoaded);
    let busy = thread::scope(|scope| {
        let waits = scope.spawn(|| pool.wait().unwrap());
        until("the call runs", || ran.waiting.load(Ordering::Acquire) == 1);
        // With two servers, the two random choices are always both servers.
        let others = answers(&pool, 20);
        ran.open.store(true, Ordering::Release);
        let busy = waits.join().unwrap();
        assert_eq!(others, HashMap::from([(1 - busy, 20)]));
        busy
    });
    assert!(answers(&pool, 100).contains_key(&busy), "the server is idle again");
}

/// The calls of other clients count, too: the servers are asked for their counters.
#[test]
fn server_that_is_busy_for_others_gets_no_calls() {
    let _directory = own_directory();
    let (board, ran, _desks) = desks(2);
    let other = board.pool(Balance::First);
    let pool = board.pool(Balance::LeastLoaded);
    thread::scope(|scope| {
        let waits = scope.spawn(|| other.wait().unwrap());
        until("the call runs", || ran.waiting.load(Ordering::Acquire) == 1);
        until("the pool knows", || answers(&pool, 20) == HashMap::from([(1, 20)]));
        ran.open.store(true, Ordering::Release);
        waits.join().unwrap();
        until("the pool knows that both are idle", || answers(&pool, 20).len() == 2);
    });
}

#[test]
fn pool_follows_the_directory() {
    let _directory = own_directory();
    let (board, ran, mut all) = desks(2);
    let pool = board.pool(Balance::RoundRobin);
    all.push(At::new(2, &ran));
    board.post(&all);
    used(&pool, 3);
    assert_eq!(answers(&pool, 3).len(), 3);
    board.post(&all[2..]);
    used(&pool, 1);
    assert_eq!(answers(&pool, 10), HashMap::from([(2, 10)]));
    let posted = board.0.lock().unwrap();
    assert_eq!((posted.watches, posted.questions), (1, 0), "one watch, and no question");
    drop(posted);
    drop(pool);
    until("the watch ends", || board.0.lock().unwrap().watchers.is_empty());
}

#[test]
fn directory_that_forgets_all_servers_ends_no_calls() {
    let _directory = own_directory();
    let (board, _, mut all) = desks(2);
    let pool = board.pool(Balance::RoundRobin);
    board.post(&[]);
    assert_eq!(answers(&pool, 10).len(), 2, "both serve, so both are used");
    all[0].drain();
    assert_eq!(answers(&pool, 10), HashMap::from([(1, 10)]));
    used(&pool, 1);
}

/// A directory that panics when it is asked for the second time, and then works.
#[derive(Debug)]
struct Fragile(Board, AtomicU64);

impl Directory for Fragile {
    fn offers(&self, name: &str) -> Result<Vec<Address>, CallError> {
        self.0.offers(name)
    }
    fn describe(&self) -> String {
        self.0.describe()
    }
    fn look_up(&self, name: &str) -> Result<Offers, CallError> {
        assert!(self.1.fetch_add(1, Ordering::Relaxed) != 1, "a fault of the directory");
        self.0.look_up(name)
    }
}

#[test]
fn directory_that_panics_is_asked_again() {
    let _directory = own_directory();
    let (board, ran, mut all) = desks(1);
    let fragile = Arc::new(Fragile(board, AtomicU64::new(0)));
    let options = BindOptions::default().directory(Arc::clone(&fragile));
    let pool = DeskPool::bind_with("desk", &options).unwrap();
    assert_eq!(pool.number().unwrap(), 0);
    all[0].drain();
    let next = At::new(7, &ran);
    fragile.0.post([&next]);
    until("the next server is found", || pool.number().is_ok_and(|number| number == 7));
    assert!(fragile.1.load(Ordering::Relaxed) >= 3);
}

/// Returns the number of threads of this process that bind to servers of pools.
fn binding_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm"));
    let names = tasks.flatten().filter_map(|task| name(task).ok());
    names.filter(|name| name.trim() == "peregrine-bind").count()
}

#[test]
fn servers_that_come_and_go_disturb_no_call() {
    let _alone = alone();
    let _directory = own_directory();
    let (board, ran, all) = desks(4);
    let pool = board.pool(Balance::RoundRobin);
    let going = AtomicBool::new(true);
    let made = thread::scope(|scope| {
        let keep_going = KeepGoing::new(&going);
        let caller = scope.spawn(|| {
            let mut calls = 0;
            while going.load(Ordering::Relaxed) {
                pool.count(calls).unwrap();
                calls += 1;
            }
            calls
        });
        // The first server stays. The others come and go in all combinations, faster than the pool can bind.
        for round in 0..500_usize {
            let is_there = |at: usize| at == 0 || round >> (at - 1) & 1 == 1;
            board.post(all.iter().enumerate().filter(|(at, _)| is_there(*at)).map(|one| one.1));
            // At most eight threads bind at a time. On a busy machine, others have bound and still end.
            assert!(binding_threads() <= 8 + 40);
            if round % 10 == 0 {
                thread::sleep(Duration::from_millis(2));
            }
        }
        board.post(&all);
        drop(keep_going);
        caller.join().unwrap()
    });
    let counts = ran.counts.lock().unwrap();
    assert!(counts.len() as u64 == made && counts.values().all(|count| *count == 1));
    drop(counts);
    used(&pool, 4);
}

#[test]
fn server_that_returns_is_used_again() {
    let _directory = own_directory();
    let (board, ran, mut all) = desks(2);
    let pool = board.pool(Balance::RoundRobin);
    let address = all[0].running.as_ref().unwrap().addresses()[0].to_string();
    all[0].drain();
    assert_eq!(answers(&pool, 20), HashMap::from([(1, 20)]));
    let left_out = pool.servers().into_iter().find(|one| one.server == "desk00").unwrap();
    assert!(left_out.standing != PoolStanding::Used && left_out.path.is_none(), "{left_out:?}");
    let options = ExportOptions::default().networks_only();
    let desk = DeskServer::new(Numbered(7, ran));
    let server = Server::new().export_with("desk", desk, options).unwrap();
    let _again = server.listen(&address).unwrap().spawn().unwrap();
    used(&pool, 2);
    assert_eq!(answers(&pool, 20), HashMap::from([(1, 10), (7, 10)]));
}

#[test]
fn pool_without_servers_says_why_or_waits() {
    let _directory = own_directory();
    let (board, ran, _) = desks(0);
    let error = DeskPool::bind_with("desk", &board.options()).unwrap_err();
    assert_eq!((error.kind(), error.executed()), (Kind::NotFound, Executed::No));
    assert!(error.to_string().contains("not in the board of a test"), "{error}");
    let patient = board.options().wait_for(LIMIT);
    thread::scope(|scope| {
        let pool = scope.spawn(|| DeskPool::bind_with("desk", &patient).unwrap());
        until("the pool watches", || board.0.lock().unwrap().watches == 2);
        let mut desk = At::new(4, &ran);
        board.post([&desk]);
        let pool = pool.join().unwrap();
        assert_eq!(pool.number().unwrap(), 4);
        // A call waits, too.
        desk.drain();
        board.post([]);
        let call = scope.spawn(move || pool.number().unwrap());
        let desk = At::new(5, &ran);
        board.post([&desk]);
        assert_eq!(call.join().unwrap(), 5);
    });
}

#[test]
fn server_that_does_not_fit_is_left_out() {
    #[interface(name = "Desk")]
    trait Other {
        fn number(&self) -> peregrine::Result<String>;
    }
    struct Words;
    impl Other for Words {
        fn number(&self) -> peregrine::Result<String> {
            Ok("seven".to_owned())
        }
    }
    let _directory = own_directory();
    let (board, ran) = (Board::default(), Arc::default());
    let all = [At::new(0, &ran), At::serving("tcp", 1, OtherServer::new(Words))];
    board.post(&all);
    let pool = DeskPool::bind_with("desk", &board.options()).unwrap();
    used(&pool, 1);
    assert_eq!(answers(&pool, 10), HashMap::from([(0, 10)]));
    let other = pool.servers().into_iter().find(|one| one.server == "desk01").unwrap();
    assert_eq!(other.standing, PoolStanding::LeftOut);
    assert!(other.reason.contains("number"), "{other}");
    let shown = pool.binding().explain().to_string();
    assert!(shown.contains("desk00") && shown.contains("left out"), "{shown}");
    board.post(&all[1..]);
    let error = DeskPool::bind_with("desk", &board.options()).unwrap_err();
    assert_eq!(error.kind(), Kind::InterfaceMismatch, "{error}");
}

/// While servers of several versions serve, a call goes to one that has its procedure.
#[test]
fn call_goes_to_a_server_that_has_its_procedure() {
    #[interface(name = "Desk")]
    trait Newer {
        #[idempotent]
        fn number(&self) -> peregrine::Result<u32>;
        fn title(&self) -> peregrine::Result<String>;
    }
    struct Titled(u32);
    impl Newer for Titled {
        fn number(&self) -> peregrine::Result<u32> {
            Ok(self.0)
        }
        fn title(&self) -> peregrine::Result<String> {
            Ok(format!("desk {}", self.0))
        }
    }
    let _directory = own_directory();
    let (board, ran, mut all) = desks(9);
    all.push(At::serving("tcp", 9, NewerServer::new(Titled(9))));
    board.post(&all);
    for balance in [Balance::First, Balance::Random, Balance::RoundRobin, Balance::LeastLoaded] {
        let pool = NewerPool::bind_with("desk", &board.options().balance(balance)).unwrap();
        until("the pool uses all servers", || {
            pool.servers().iter().all(|one| one.standing == PoolStanding::Used)
        });
        (0..50).for_each(|_| assert_eq!(pool.title().unwrap(), "desk 9"));
        assert!((0..50).map(|_| pool.number().unwrap()).all(|number| number < 10));
    }
    // The clients of the older version call all of them.
    let pool = board.pool(Balance::RoundRobin);
    assert_eq!(answers(&pool, 20).len(), 10);
    let error = pool.count(1).err();
    assert!(error.is_none(), "{error:?}");
    // If no server has the procedure, the call fails and was not executed.
    board.post(&all[..9]);
    let pool = NewerPool::bind_with("desk", &board.options()).unwrap();
    let error = pool.title().unwrap_err();
    assert_eq!((error.kind(), error.executed()), (Kind::NoSuchProcedure, Executed::No));
    drop(ran);
}

/// If all servers are overloaded, repeated calls must not multiply the load.
#[test]
fn overloaded_servers_get_few_calls_again() {
    const CALLS: u64 = 2000;
    let _directory = own_directory();
    let (board, ran) = (Board::default(), Arc::<Ran>::default());
    let busy = |number| {
        let desk = DeskServer::new(Numbered(number, Arc::clone(&ran)));
        At::with(Server::new().threads(1).queue(0), "tcp", number, desk)
    };
    let all = [busy(0), busy(1)];
    board.post(&all);
    let refused = || {
        let counts = all.iter().map(|desk| {
            let at = desk.running.as_ref().unwrap().addresses()[0].to_string();
            let at = at.replacen(':', ":@", 1);
            ServerInfoClient::bind(&at).unwrap().stat().unwrap().server.counts.refused
        });
        counts.sum::<u64>()
    };
    let most = thread::scope(|scope| {
        for desk in &all {
            let client = DeskClient::bind(&desk.offer.addresses()[0].to_string()).unwrap();
            scope.spawn(move || client.wait().unwrap());
        }
        until("both servers are busy", || ran.waiting.load(Ordering::Acquire) == 2);
        let pool = board.pool(Balance::RoundRobin);
        let begun = Instant::now();
        for _ in 0..CALLS {
            let error = pool.number().unwrap_err();
            assert_eq!((error.kind(), error.executed()), (Kind::Overloaded, Executed::No));
        }
        let seconds = begun.elapsed().as_secs() + 1;
        ran.open.store(true, Ordering::Release);
        // The budget: 100 repetitions, one for each five attempts, and ten a second.
        (100 + CALLS / 5 + 10 * seconds) * 5 / 4
    });
    let repeated = refused() - CALLS;
    assert!(repeated > 100 + CALLS / 6 && repeated <= most, "{repeated}, at most {most}");
}

#[test]
fn nearest_servers_are_preferred() {
    let _directory = own_directory();
    let (board, ran, mut all) = desks(1);
    let near = Server::new().export("desk", DeskServer::new(Numbered(9, ran))).unwrap();
    let near = near.listen("tcp:127.0.0.1:0").unwrap().spawn().unwrap();
    let address = near.addresses()[0].to_string().replace("tcp:", "desk@");
    all.push(At { offer: Offer::new("near", [address]).unwrap(), running: Some(near) });
    board.post(&all);
    let pool = DeskPool::bind_with("desk", &board.options()).unwrap();
    until("the pool knows which server is nearer", || {
        let standing: Vec<_> = pool.servers().iter().map(|one| one.standing).collect();
        standing == [PoolStanding::Farther, PoolStanding::Used]
    });
    assert_eq!(answers(&pool, 10), HashMap::from([(9, 10)]));
    assert_eq!(pool.binding().path(), PathKind::Local);
    let options = board.options().nearest_first(false).balance(Balance::RoundRobin);
    let both = DeskPool::bind_with("desk", &options).unwrap();
    used(&both, 2);
    assert_eq!(answers(&both, 10), HashMap::from([(0, 5), (9, 5)]));
    // The farther server takes over when the near one stops.
    all[1].drain();
    assert_eq!(answers(&pool, 10), HashMap::from([(0, 10)]));
}

#[test]
fn call_that_may_have_run_is_repeated_only_if_allowed() {
    let _directory = own_directory();
    for (rebind, repeats) in [(Rebind::WhenNotExecuted, false), (Rebind::Idempotent, true)] {
        let (board, ran, mut all) = desks(2);
        let options = board.options().balance(Balance::First).rebind(rebind);
        let pool = DeskPool::bind_with("desk", &options).unwrap();
        used(&pool, 2);
        thread::scope(|scope| {
            let wait = scope.spawn(|| pool.wait());
            let look = scope.spawn(|| pool.look());
            until("both calls run", || ran.waiting.load(Ordering::Acquire) == 2);
            // The calls that run get no result.
            assert!(!all[0].running.take().unwrap().drain(Duration::ZERO));
            let error = wait.join().unwrap().unwrap_err();
            assert_eq!(error.executed(), Executed::Maybe, "{error}");
            if repeats {
                until("it runs again", || ran.waiting.load(Ordering::Acquire) == 3);
            }
            ran.open.store(true, Ordering::Release);
            let looked = look.join().unwrap();
            assert_eq!(looked.as_ref().ok(), repeats.then_some(&1), "{looked:?}");
            assert_eq!(ran.waiting.load(Ordering::Acquire), if repeats { 3 } else { 2 });
        });
        all[1].drain();
        let error = pool.number().unwrap_err();
        assert_eq!(error.executed(), Executed::No, "{error}");
        assert!(error.to_string().contains("desk00: "), "{error}");
        assert!(error.to_string().contains("desk01: "), "{error}");
    }
}

#[test]
fn oneway_calls_stay_in_order_and_none_is_lost() {
    let _directory = own_directory();
    let (board, ran, mut all) = desks(2);
    let pool = board.pool(Balance::RoundRobin);
    (0..500).for_each(|call| pool.note(call).unwrap());
    pool.flush().unwrap();
    let notes = core::mem::take(&mut *ran.notes.lock().unwrap());
    let at = notes[0].0;
    assert_eq!(notes, (0..500).map(|call| (at, call)).collect::<Vec<_>>());
    all[at as usize].drain();
    (500..1000).for_each(|call| pool.note(call).unwrap());
    pool.flush().unwrap();
    let notes = core::mem::take(&mut *ran.notes.lock().unwrap());
    assert_eq!(notes, (500..1000).map(|call| (1 - at, call)).collect::<Vec<_>>());
}

/// Replaces all servers while clients call them. Not one call fails, and none runs twice.
#[test]
fn all_servers_are_replaced_under_load() {
    for path in ["tcp", "udp"] {
        replace_all_under_load(path);
    }
}

fn replace_all_under_load(path: &str) {
    let _alone = alone();
    let _directory = own_directory();
    let (board, ran) = (Board::default(), Arc::default());
    let mut all: Vec<_> = (0..10).map(|number| At::over(path, number, &ran)).collect();
    board.post(&all);
    let (calls, going) = (AtomicU64::new(0), AtomicBool::new(true));
    let options = board.options();
    let made = thread::scope(|scope| {
        let keep_going = KeepGoing::new(&going);
        let clients: Vec<_> = (0..8)
            .map(|client| {
                let (calls, going) = (&calls, &going);
                let options = options.clone().balance(match client % 3 {
                    0 => Balance::RoundRobin,
                    1 => Balance::LeastLoaded,
                    _ => Balance::Random,
                });
                scope.spawn(move || {
                    let pool = DeskPool::bind_with("desk", &options).unwrap();
                    let mut made = 0;
                    while going.load(Ordering::Relaxed) {
                        let call = calls.fetch_add(1, Ordering::Relaxed);
                        pool.count(call).unwrap_or_else(|error| panic!("call {call}: {error}"));
                        made += 1;
                    }
                    until("only new servers are known", || {
                        pool.servers().iter().all(|one| *one.server >= *"desk10")
                    });
                    made
                })
            })
            .collect();
        for old in 0..10 {
            let before = calls.load(Ordering::Relaxed);
            until("calls are made", || calls.load(Ordering::Relaxed) > before + 500);
            let mut new = At::over(path, 10 + old, &ran);
            core::mem::swap(&mut all[old as usize], &mut new);
            board.post(&all);
            new.drain();
        }
        drop(keep_going);
        clients.into_iter().map(|client| client.join().unwrap()).sum::<u64>()
    });
    let counts = ran.counts.lock().unwrap();
    assert_eq!(counts.len() as u64, made);
    assert!(counts.values().all(|count| *count == 1));
}

#[tokio::test]
async fn async_pool_goes_on_when_servers_are_replaced() {
    let _directory = own_directory();
    let (board, ran, mut all) = desks(3);
    let options = board.options().balance(Balance::RoundRobin);
    let pool = DeskAsyncPool::bind_with("desk", &options).await.unwrap();
    for round in 0..3 {
        let mut new = At::new(10 + round, &ran);
        core::mem::swap(&mut all[round as usize], &mut new);
        board.post(&all);
        new.drain();
        let calls: Vec<_> = (0..50).map(|call| pool.count(u64::from(round) * 50 + call)).collect();
        for call in calls {
            call.await.unwrap();
        }
    }
    let counts = ran.counts.lock().unwrap();
    assert_eq!(counts.len(), 150);
    assert!(counts.values().all(|count| *count == 1));
}
