-- A directory of names.
Directory: PROGRAM 702 VERSION 3 =
BEGIN
    DEPENDS UPON BulkData(0) VERSION 1, Passport (714) VERSION 1;

    -- LIMITS --

    maxName: CARDINAL = 28H; -- in bytes --
    maxHops: LONG CARDINAL = 37777777777B;
    nothing: INTEGER = -32768;

    -- Names: in two parts --
    Name: TYPE = RECORD [domain, local: STRING];
    Address: TYPE = RECORD [network: LONG UNSPECIFIED, host: ARRAY 3 OF UNSPECIFIED, socket: UNSPECIFIED];
    Addresses: TYPE = SEQUENCE maxName OF Address;
    Agent: TYPE = RECORD [pass: Passport.Pass, signature: SEQUENCE 12 OF UNSPECIFIED];

    -- The standard form of a long list.
    StreamOfName: TYPE = CHOICE OF {
        nextSegment(0) => RECORD [segment: SEQUENCE OF Name, restOfStream: StreamOfName],
        lastSegment(1) => SEQUENCE OF Name};

    Kind: TYPE = {group(0), item(1), alias(7)};
    Entry: TYPE = CHOICE Kind OF {
        group => SEQUENCE OF Entry,
        item => RECORD [type: LONG CARDINAL, value: SEQUENCE 500 OF UNSPECIFIED],
        alias => Entry};
    Tree: TYPE = RECORD [entry: Entry, children: SEQUENCE OF Tree, state: {open(0), closed(1)}];
    Chain: TYPE = SEQUENCE OF Chain;

    -- The name does not exist.
    Unknown: ERROR [which: {first(1), second(2)}, name: Name] = 2;
    Refused: ERROR [problem: Passport.Problem] = 1;
    Busy: ERROR = 6;

    -- Finds the servers of the directory.
    FindServers: PROCEDURE RETURNS [addresses: Addresses] REPORTS [Busy] = 0;
    ListNames: PROCEDURE [pattern: STRING, names: BulkData.Sink, agent: Agent] REPORTS [Refused, Busy] = 1;
    -- Reads an entry.
    -- The name may be an alias.
    Read: PROCEDURE [name: Name, limit: CARDINAL, agent: Agent]
        RETURNS [entry: Entry, distinguished: Name, version: LONG CARDINAL]
        REPORTS [Refused, Unknown, Busy] = 2;
    Walk: PROCEDURE [type: Kind] RETURNS [names: StreamOfName, tree: Tree, chain: Chain] = 3;
    Reset: PROCEDURE = 4;
END.
