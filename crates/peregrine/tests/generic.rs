//! Tests interpreted and compiled stubs together. Calls through a bridge (a generic server that forwards its
//! calls) keep the contract of a call. Both kinds of stubs send the same bytes.

mod contract;
mod support;

use std::sync::{Arc, Mutex};

use contract::{
    Chain, Client, Colour, Contract as _, ContractClient, Form, Object, Person, Pixel, Place, Point,
};
use peregrine::call::{
    Answer, EStack, Incoming, Ran, Refusal, Reply, Request, Serve, Served, execute,
};
use peregrine::interface::{Described, InterfaceRef};
use peregrine::value::{ByteOrder, Space, Window, align_up};
use peregrine::{
    Argument, BindOptions, Binding, Dynamic, Executed, GenericCall, GenericClient, GenericOutcome,
    GenericParameter, GenericServer, Kind, Lent, Out, Server, interface,
};
use proptest::prelude::*;
use support::swapped::SwappedServer;

fn described() -> Described {
    Described::parse(&ContractClient::INTERFACE.canonical_text()).unwrap()
}

/// Forwards a received call to another server. Nothing of the interface is compiled into this function.
fn forward(client: &GenericClient, call: &mut GenericCall<'_>) -> GenericOutcome {
    let number = call.number();
    let mut arguments: Vec<Argument<'_>> = call
        .parameters()
        .iter_mut()
        .map(|parameter| match parameter {
            GenericParameter::In(value) => Argument::In(value),
            GenericParameter::Lent(lent) => Argument::Bytes(*lent),
            GenericParameter::Out(out) => Argument::Out(out.by_ref()),
            GenericParameter::InOut(value) => Argument::InOut(value),
            GenericParameter::Sink(_)
            | GenericParameter::Source(_)
            | GenericParameter::Callback(_) => {
                unreachable!("tests/generic_streams.rs forwards streams and callbacks")
            }
        })
        .collect();
    let mut result = Dynamic::Unit;
    let ok = client.call_into(number, &mut arguments, &mut result)?;
    Ok(if ok { Ok(result) } else { Err(result) })
}

/// Makes a generic server that forwards calls through a generic client to the compiled server `to`.
fn bridge(to: impl Serve + 'static) -> GenericServer {
    let inner = Binding::in_process(Arc::new(to), &BindOptions::default());
    let client = GenericClient::over(inner, described());
    GenericServer::new(described(), move |call| forward(&client, call))
}

#[test]
fn bridge_keeps_the_contract_within_a_process() {
    let make = |form, server: GenericServer| {
        Client::over(form, Binding::in_process(Arc::new(server), &BindOptions::default()))
    };
    contract::suite_of_a_bridge("a bridge", &|server, form| make(form, bridge(server)));
    contract::suite_of_a_bridge("a bridge, swapped", &|server, form| {
        make(form, bridge(SwappedServer::new(server)))
    });
}

#[test]
fn bridge_keeps_the_contract_on_every_path() {
    let _directory = support::own_directory();
    let next = std::sync::atomic::AtomicU32::new(0);
    for (endpoint, scheme) in
        [(None, ""), (Some("tcp:127.0.0.1:0"), "tcp"), (Some("udp:127.0.0.1:0"), "udp")]
    {
        let running = Mutex::new(Vec::new());
        contract::suite_of_a_bridge(&format!("a bridge {scheme}"), &|server, form| {
            let number = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let name = format!("generic-{}-{number}", std::process::id());
            // The object to which the bridge forwards its calls has its own server on the same path.
            let object_name = format!("{name}-object");
            let server = Server::new().export(&object_name, server).unwrap();
            let server = match endpoint {
                Some(endpoint) => server.listen(endpoint).unwrap(),
                None => server,
            };
            let served = server.spawn().unwrap();
            let at = |running: &peregrine::Running, name: &str| match scheme {
                "" => name.to_owned(),
                _ => format!("{}/{name}", running.addresses()[0]),
            };
            let client = GenericClient::bind(&at(&served, &object_name)).unwrap();
            assert_eq!(client.described().digest(), ContractClient::INTERFACE.digest());
            let bridge = GenericServer::new(described(), move |call| forward(&client, call));
            let server = Server::new().export(&name, bridge).unwrap();
            let server = match endpoint {
                Some(endpoint) => server.listen(endpoint).unwrap(),
                None => server,
            };
            let bridged = server.spawn().unwrap();
            let options = BindOptions::default();
            let client = Client::bind(form, &at(&bridged, &name), &options).unwrap();
            running.lock().unwrap().extend([served, bridged]);
            client
        });
    }
}

// The bytes of messages.

/// A received message: number of the procedure, head, copied blocks, lent blocks.
type Message = (u32, Vec<u8>, Vec<u8>, Vec<u8>);

/// A server that records its calls and refuses them.
#[derive(Clone)]
struct Recorder(Arc<Mutex<Vec<Message>>>, ByteOrder);

impl Serve for Recorder {
    fn interface(&self) -> InterfaceRef {
        ContractClient::INTERFACE.into()
    }
    fn byte_order(&self) -> ByteOrder {
        self.1
    }
    fn serve(&self, request: &mut Request<'_>, _: &mut Reply<'_>) -> Served {
        let number = request.procedure();
        let raw = request.raw();
        let mut head = vec![0; raw.head.len()];
        raw.head.read(0, &mut head).unwrap();
        let mut lent = vec![0; raw.lent.len()];
        raw.lent.read(&mut lent)?;
        self.0.lock().unwrap().push((number, head, raw.copied.to_vec(), lent));
        Err(Refusal::no_such_procedure(number))
    }
}

/// Returns the whole message, the size of its head in bytes, and the offset at which its copied part ends.
fn incoming(message: &Message) -> (Vec<u8>, usize, usize) {
    let (number, head, copied, lent) = message;
    let procedure = &described().procedures[*number as usize];
    let slices = |lent: bool| {
        use peregrine::interface::{Direction, Shape};
        procedure.parameters.iter().any(|one| {
            one.shape != Shape::One
                && if lent {
                    one.direction == Direction::Lent
                } else {
                    matches!(one.direction, Direction::In | Direction::InOut)
                }
        })
    };
    let mut whole = head.clone();
    if slices(false) {
        whole.resize(align_up(whole.len()), 0);
        whole.extend(copied);
    }
    if slices(true) {
        whole.resize(align_up(whole.len()), 0);
    }
    let at = whole.len();
    whole.extend(lent);
    (whole, head.len(), at)
}

/// Returns the size in bytes of the table before the out blocks of a result, and the offset of the first
/// block.
fn before_blocks(number: u32) -> (usize, usize) {
    use peregrine::interface::{Direction, Shape};
    let parameters = &described().procedures[number as usize].parameters;
    let is_block = |direction, shape| match direction {
        Direction::Out => true,
        Direction::InOut => shape != Shape::One,
        Direction::In
        | Direction::Lent
        | Direction::Sink
        | Direction::Source
        | Direction::Callback => false,
    };
    let blocks = parameters.iter().filter(|one| is_block(one.direction, one.shape)).count();
    (4 * blocks, if blocks == 0 { 0 } else { align_up(4 * blocks).max(32) })
}

/// Returns what a server answers to a message: the kind of the answer, the offset and the size of the
/// reply's head, and all of the reply's memory. Bytes of the memory that are not specified are zero.
fn answer(serve: &dyn Serve, message: &Message) -> (Answer, u32, u32, Vec<u8>) {
    let (whole, head_bytes, copied) = incoming(message);
    let incoming = Incoming {
        procedure: message.0,
        space: Window::from(&whole[..]),
        head_bytes,
        copied,
        total: whole.len(),
        arrives: None,
        departs: None,
    };
    let mut memory = vec![0; 1 << 16];
    let space = Space::of_mut(&mut memory);
    let Ran { answer, head_at: at, head_bytes: bytes, .. } =
        execute(serve, &incoming, space, &mut EStack::default());
    let (table, first) = before_blocks(message.0);
    if answer != Answer::Ok {
        // The bytes after the head of an error are not specified.
        memory[(at + bytes) as usize..].fill(0);
    } else if at as usize > table {
        // The head does not fit between the table and the first block, so it is after the blocks. The bytes
        // between the table and the first block are not specified.
        memory[table..first].fill(0);
    }
    (answer, at, bytes, memory)
}

fn word() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), "[a-zß水🦅]{1,9}"]
}

fn place() -> impl Strategy<Value = Place> {
    prop_oneof![
        Just(Place::Nowhere),
        word().prop_map(Place::Named),
        (any::<i32>(), colour())
            .prop_map(|(x, colour)| Place::At { point: Point { x: x.into(), y: -0.5 }, colour }),
    ]
}

fn colour() -> impl Strategy<Value = Colour> {
    prop_oneof![Just(Colour::Red), Just(Colour::Green), Just(Colour::Blue)]
}

fn person() -> impl Strategy<Value = Person> {
    let home = proptest::option::of(place().prop_map(Box::new));
    let leaf = (word(), 0..99u8, home).prop_map(|(name, age, home)| Person {
        name,
        age,
        friends: Vec::new(),
        home,
    });
    leaf.prop_recursive(3, 8, 3, |inner| {
        (word(), 0..99u8, proptest::collection::vec(inner, 0..3))
            .prop_map(|(name, age, friends)| Person { name, age, friends, home: None })
    })
}

fn some<T: std::fmt::Debug>(one: impl Strategy<Value = T>) -> impl Strategy<Value = Vec<T>> {
    proptest::collection::vec(one, 0..4)
}

/// Arguments for every procedure.
#[derive(Debug)]
struct Arguments {
    numbers: (u8, i64, u128, f32, bool, char, u32),
    text: String,
    words: Vec<u16>,
    longs: Vec<u64>,
    bits: Vec<bool>,
    colours: Vec<Colour>,
    people: Vec<Person>,
    person: Person,
    place: Place,
    room: usize,
    links: usize,
}

prop_compose! {
    fn arguments()(
        numbers in any::<(u8, i64, u128, i16, bool, char, u16)>(),
        text in word(),
        words in some(any::<u16>()),
        longs in some(0..u64::MAX / 8),
        bits in some(any::<bool>()),
        colours in some(colour()),
        people in some(person()),
        person in person(),
        place in place(),
        room in 0..40usize,
        links in 0..9usize,
    ) -> Arguments {
        let (a, b, c, d, e, f, g) = numbers;
        // The numbers are so small that the procedures can add to them without overflow.
        let numbers = (a, b, c, f32::from(d), e, f, u32::from(g));
        Arguments { numbers, text, words, longs, bits, colours, people, person, place, room, links }
    }
}

impl Arguments {
    /// Calls every procedure, and ignores the results.
    fn call(&self, client: &Client) {
        let (a, b, c, d, yes, letter, word) = self.numbers;
        let mut points = vec![Point::default(); self.room];
        let mut bytes = vec![0u8; self.room];
        let (mut words, mut total) = (self.words.clone(), word.into());
        let (mut people, mut person) = (self.people.clone(), self.person.clone());
        let (mut bits, mut colours) = (self.bits.clone(), self.colours.clone());
        let _ = client.nothing();
        let _ = client.numbers(a, b, c, d);
        let _ = client.letters(yes, letter);
        let _ = client.point(&Point { x: d.into(), y: 1.0 });
        let _ = client.pixel(Pixel { at: word, colour: Colour::Blue, lit: yes, layer: 9 });
        let _ = client.person(&self.person);
        let _ = client.place(self.place.clone());
        let _ = client.chain(Chain::of(self.links));
        let _ = client.array(&[1, 2, 3, 4, u16::from(a)], [yes.then_some(word), None]);
        let _ = client.owned(self.text.clone(), self.longs.clone());
        let _ = client.shout(&self.text);
        let _ = client.names(&self.people);
        let lent = [Point { x: 1.0, y: 2.0 }; 3];
        let _ = client.count_bytes(self.text.as_bytes().into(), Lent::from(&lent[..]));
        let lent = self.text.as_bytes();
        let _ = client.all_in(&self.text, a, &words, lent.into(), &self.people, &self.longs[..]);
        let mut numbers = vec![0; self.room];
        let _ = client.fill(5, Out::from(&mut numbers[..]));
        let (mut three, mut letters) = ([Colour::Red; 3], ['a'; 7]);
        let _ = client.colours(Out::from(&mut three), Out::from(&mut letters));
        let _ = client.double(&mut word.clone());
        let _ = client.rename(&mut person);
        let _ = client.sort(&mut self.longs.clone());
        let _ = client.invert(&mut bits, &mut colours);
        let _ = client.birthday(&mut people, 1);
        let mut first = vec![0; 5 + self.room];
        let _ = client.mixed(
            Out::from(&mut first[..]),
            &mut words,
            &mut total,
            &mut people,
            Out::from(&mut points[..]),
            &mut person,
            &mut bits,
        );
        let mut into = vec![0; self.text.len() + self.room];
        for fail in [true, false] {
            let out = Out::from(&mut into[..]);
            let text = &self.text;
            let _ = client.fails(fail, text, out, &mut word.clone(), &mut [1, 2], &mut people);
        }
        let _ = client.relays();
        let _ = client.lengthen(self.links as u32);
        let _ = client.innermost();
        let _ = client.meet(1);
        let _ = client.bounded("abc", &[1], &mut [1, 2], Lent::from(&[3u8][..]));
        let _ = client.bounded_out(Out::from(&mut bytes[..]));
    }

    /// Calls every procedure with a client of this form. Returns the messages that a server of this byte
    /// order receives.
    fn sent(&self, form: Form, order: ByteOrder) -> Vec<Message> {
        let recorder = Recorder(Arc::default(), order);
        let binding = Binding::in_process(Arc::new(recorder.clone()), &BindOptions::default());
        self.call(&Client::over(form, binding));
        let sent = recorder.0.lock().unwrap();
        sent.clone()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn compiled_async_and_interpreted_stubs_send_the_same_bytes(arguments in arguments()) {
        let native = arguments.sent(Form::Blocking, ByteOrder::NATIVE);
        for order in [ByteOrder::NATIVE, ByteOrder::NATIVE.other()] {
            let interpreted = Recorder(Arc::default(), order);
            let bridge = bridge(interpreted.clone());
            for message in &native {
                answer(&bridge, message);
            }
            let interpreted = interpreted.0.lock().unwrap().clone();
            prop_assert!(interpreted.len() > 25, "{}", interpreted.len());
            for form in [Form::Blocking, Form::Async] {
                prop_assert_eq!(&arguments.sent(form, order), &interpreted, "{:?}", form);
            }
        }
    }

    #[test]
    fn compiled_async_and_interpreted_stubs_answer_with_the_same_bytes(arguments in arguments()) {
        let sent = arguments.sent(Form::Blocking, ByteOrder::NATIVE);
        let server = |form| Object::default().server(form);
        let compiled = server(Form::Blocking);
        let others: [Box<dyn Serve>; 3] = [
            Box::new(server(Form::Async)),
            Box::new(bridge(server(Form::Blocking))),
            Box::new(bridge(SwappedServer::new(server(Form::Blocking)))),
        ];
        for message in &sent {
            let (compiled, at, bytes, memory) = answer(&compiled, message);
            // A bridge changes two replies: the error of `relays` counts the programs that relayed it, and
            // `innermost` returns the chain of callers. So the bridges' replies of these two procedures are
            // not compared.
            let procedure = &ContractClient::INTERFACE.procedures[message.0 as usize].name;
            let names_bridge = ["relays", "innermost"].contains(procedure);
            let others = if names_bridge { &others[..1] } else { &others[..] };
            for other in others {
                let (answer_too, at_too, bytes_too, memory_too) = answer(&**other, message);
                prop_assert_eq!((compiled, at, bytes), (answer_too, at_too, bytes_too));
                prop_assert!(memory == memory_too, "procedure {}", message.0);
            }
        }
    }
}

// Errors that a generic client returns.

#[interface]
trait Small {
    fn greet(&self, #[max_len(8)] name: &str) -> peregrine::Result<String>;
    #[idempotent]
    fn sizes(&self, numbers: &[u32], into: Out<'_, u32>) -> peregrine::Result<()>;
}

struct Thing;

impl Small for Thing {
    fn greet(&self, name: &str) -> peregrine::Result<String> {
        Ok(format!("hello {name}"))
    }
    fn sizes(&self, numbers: &[u32], mut into: Out<'_, u32>) -> peregrine::Result<()> {
        into.put(&numbers[..numbers.len().min(into.capacity())]).unwrap();
        Ok(())
    }
}

#[test]
fn generic_client_checks_its_arguments_and_names_the_error() {
    let _directory = support::own_directory();
    let name = format!("generic-small-{}", std::process::id());
    let running = Server::new().export(&name, SmallServer::new(Thing)).unwrap().spawn().unwrap();
    let client = GenericClient::bind(&name).unwrap();
    assert_eq!(client.described().procedures[1].name, "sizes");
    assert_eq!(client.described().message_bytes(), SmallClient::INTERFACE.message_bytes());
    let falcon = Dynamic::from("falcon");
    let greeting = client.call("greet", &mut [Argument::In(&falcon)]).unwrap();
    assert_eq!(greeting, Ok(Dynamic::from("hello falcon")));

    let refused = |procedure: &str, arguments: &mut [Argument<'_>]| {
        let error = client.call(procedure, arguments).unwrap_err();
        assert_eq!(error.executed(), Executed::No);
        (error.kind(), error.detail().to_owned())
    };
    assert_eq!(
        refused("great", &mut []),
        (Kind::NoSuchProcedure, "there is no `great`; there is `greet`, `sizes`".into())
    );
    assert_eq!(
        refused("greet", &mut []),
        (Kind::BadArguments, "expected 1 arguments (name), got 0".into())
    );
    assert_eq!(
        refused("greet", &mut [Argument::In(&Dynamic::U8(1))]),
        (Kind::BadArguments, "name: expected text".into())
    );
    let long = Dynamic::from("nine bytes");
    assert_eq!(refused("greet", &mut [Argument::In(&long)]).0, Kind::TooLarge);
    let odd = Dynamic::Plain(vec![0; 6]);
    let mut memory = [0; 12];
    assert_eq!(
        refused("sizes", &mut [Argument::In(&odd), Argument::Out(Out::from(&mut memory))]),
        (Kind::BadArguments, "numbers: expected elements of 4 bytes, got 6 bytes".into())
    );
    let list = Dynamic::List(vec![Dynamic::U32(1), Dynamic::I32(1)]);
    assert_eq!(
        refused("sizes", &mut [Argument::In(&list), Argument::Out(Out::from(&mut memory))]),
        (Kind::BadArguments, "numbers[1]: expected u32, got an i32".into())
    );
    assert_eq!(
        refused("sizes", &mut [Argument::In(&list), Argument::In(&list)]).1,
        "numbers[1]: expected u32, got an i32"
    );

    // The memory has 15 bytes, of which 3 elements use 12. `filled` counts bytes.
    let list = Dynamic::List((1..=5).map(Dynamic::U32).collect());
    let mut memory = [0; 15];
    let mut out = Out::from(&mut memory);
    let done = client.call("sizes", &mut [Argument::In(&list), Argument::Out(out.by_ref())]);
    assert_eq!((done.unwrap(), out.filled()), (Ok(Dynamic::Unit), 12));
    assert_eq!(Dynamic::Plain(memory[..12].to_vec()).to_vec(), Some(vec![1u32, 2, 3]));

    // A server that has more procedures than the client uses is compatible. A server with other types is not.
    let all = client.described().to_string();
    let greet = all.lines().nth(1).unwrap();
    let text = all.replace(&format!("{greet}\n"), "");
    let subset = Described::parse(&text).unwrap();
    let options = BindOptions::default();
    let some = GenericClient::bind_as(&name, subset, &options).unwrap();
    let mut out = Out::from(&mut memory);
    some.call("sizes", &mut [Argument::In(&list), Argument::Out(out.by_ref())]).unwrap().unwrap();
    let text = text.replace("u32", "u64");
    let error = GenericClient::bind_as(&name, Described::parse(&text).unwrap(), &options);
    let error = error.unwrap_err();
    assert_eq!(error.kind(), Kind::InterfaceMismatch);
    assert!(error.detail().contains("parameter `numbers`: ours is `u64`"), "{error}");
    drop(running);
}

#[test]
fn results_of_a_generic_server_are_checked() {
    let all = Described::parse(&SmallClient::INTERFACE.canonical_text()).unwrap();
    let server = GenericServer::new(all, |call| {
        if let [_, GenericParameter::Out(out)] = call.parameters() {
            out.put(&[1, 2, 3]).unwrap();
        }
        Ok(Ok(Dynamic::List(vec![])))
    });
    let binding = Binding::in_process(Arc::new(server), &BindOptions::default());
    let client = SmallClient { binding };
    let error = client.greet("x").unwrap_err();
    assert_eq!((error.kind(), error.executed()), (Kind::BadResult, Executed::Maybe));
    assert!(error.detail().ends_with("result: expected text, got a list"), "{error}");
    let error = client.sizes(&[1], Out::from(&mut [0; 2])).unwrap_err();
    assert!(error.detail().ends_with("into: expected elements of 4 bytes, got 3 bytes"), "{error}");
}

/// A server that always answers with the same head and blocks, and records the copied blocks that it
/// receives. The fields: the interface, the head, each block with its capacity, and the received blocks.
struct Replies(InterfaceRef, Vec<u8>, Vec<(Vec<u8>, usize)>, Arc<Mutex<Vec<u8>>>);

impl Serve for Replies {
    fn interface(&self) -> InterfaceRef {
        self.0.clone()
    }
    fn byte_order(&self) -> ByteOrder {
        ByteOrder::NATIVE.other()
    }
    fn serve(&self, request: &mut Request<'_>, reply: &mut Reply<'_>) -> Served {
        *self.3.lock().unwrap() = request.raw().copied.to_vec();
        reply.expect(self.2.len());
        for (i, (bytes, capacity)) in self.2.iter().enumerate() {
            let block = reply.block(*capacity).expect("enough space");
            block.write(0, bytes).expect("enough space");
            reply.filled(i, bytes.len())?;
        }
        reply.raw(Answer::Ok, &self.1)
    }
}

fn replies(
    text: &str,
    head: &[u8],
    blocks: &[(&[u8], usize)],
) -> (GenericClient, Arc<Mutex<Vec<u8>>>) {
    let all = Described::parse(&format!("interface I version 0\n{text}")).unwrap();
    let blocks = blocks.iter().map(|(bytes, capacity)| (bytes.to_vec(), *capacity)).collect();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let server = Replies(all.clone().into(), head.to_vec(), blocks, Arc::clone(&seen));
    let binding = Binding::in_process(Arc::new(server), &BindOptions::default());
    (GenericClient::over(binding, all), seen)
}

#[test]
fn blocks_of_the_other_byte_order_must_be_whole_elements() {
    let (client, _) = replies("f(out a: [u32]) -> unit or unit\n", &[], &[(&[1, 2, 3], 32)]);
    let mut room = Vec::with_capacity(32);
    let error = client.call("f", &mut [Argument::Out(Out::from(&mut room))]).unwrap_err();
    assert_eq!((error.kind(), room.len()), (Kind::BadResult, 0));
}

#[test]
fn lists_are_swapped_as_plain_data_is() {
    let swapped = |number: u32| number.swap_bytes().to_ne_bytes();
    for sent in [Dynamic::plain(&[1u32, 2]), Dynamic::List(vec![Dynamic::U32(1), Dynamic::U32(2)])]
    {
        let back = [swapped(7), swapped(9)].concat();
        let (client, seen) = replies("f(inout a: [u32]) -> unit or unit\n", &[], &[(&back, 8)]);
        let mut value = sent.clone();
        client.call("f", &mut [Argument::InOut(&mut value)]).unwrap().unwrap();
        assert_eq!(seen.lock().unwrap()[..8], [swapped(1), swapped(2)].concat());
        assert_eq!(value.to_vec::<u32>(), Some(vec![7, 9]));
    }
}

#[test]
fn failed_call_leaves_arguments_unchanged() {
    let types = "P#0 = plain 4 align 2 {a: u16, b: [u8; 2]}\n";
    for (text, sent, back) in [
        ("f(inout a: [bool]) -> unit or unit\n".to_owned(), vec![0, 1], vec![7, 7]),
        (format!("f(inout a: [P#0]) -> unit or unit\n{types}"), vec![0, 1, 2, 3], vec![4, 5, 6, 7]),
    ] {
        // The reply is invalid: its head has one byte too many. In the first case, the returned bytes are not
        // valid values of `bool` either.
        let (client, _) = replies(&text, &[1], &[(&back, back.len())]);
        let mut value = Dynamic::Plain(sent.clone());
        let error = client.call("f", &mut [Argument::InOut(&mut value)]).unwrap_err();
        assert_eq!((error.kind(), value), (Kind::BadResult, Dynamic::Plain(sent)));
    }
}

#[test]
fn bridge_swaps_the_byte_order_of_forwarded_values() {
    let text = "f(out a: [P#0]) -> unit or unit\nP#0 = plain 6 align 2 {a: u16, b: [u8; 4]}\n";
    let value = [1u16.swap_bytes().to_ne_bytes().as_slice(), &[9, 8, 7, 6]].concat();
    let (client, _) = replies(text, &[], &[(&value, 6)]);
    let described = client.described().clone();
    let bridge = GenericServer::new(described, move |call| forward(&client, call));
    let through = GenericClient::in_process(bridge);
    let mut room = [0; 6];
    through.call("f", &mut [Argument::Out(Out::from(&mut room))]).unwrap().unwrap();
    let native = [1u16.to_ne_bytes().as_slice(), &[9, 8, 7, 6]].concat();
    assert_eq!(room[..], native);
}

#[test]
fn memory_for_a_reply_is_proportional_to_its_bytes() {
    let mut text = "f() -> sequence<S#0> or unit\nS#0 = struct {x: option<u8>".to_owned();
    (0..20_000).for_each(|i| text.push_str(&format!(", f{i}: unit")));
    text.push_str("}\n");
    let mut head = vec![0; 2004];
    head[..4].copy_from_slice(&2000u32.swap_bytes().to_ne_bytes());
    let (client, _) = replies(&text, &head, &[]);
    let error = client.call("f", &mut []).unwrap_err();
    assert_eq!(error.kind(), Kind::BadResult, "{error}");
}

#[test]
fn large_enums_are_decoded_quickly() {
    let mut text = "f() -> E#0 or sequence<C#1>\nE#0 = enum".to_owned();
    (0..50_000).for_each(|i| text.push_str(&format!(" V{i} {{a: u8}}")));
    text.push_str("\nC#1 = plain enum u32");
    (0..20_000).for_each(|i| text.push_str(&format!(" A{i}={i}")));
    text.push('\n');
    let head = [49_999u32.swap_bytes().to_ne_bytes().as_slice(), &[5]].concat();
    let (client, _) = replies(&text, &head, &[]);
    let got = client.call("f", &mut []).unwrap();
    assert_eq!(got, Ok(Dynamic::Variant(49_999, vec![Dynamic::U8(5)])));
}
