-- The test program that courier.py serves and calls. Every type of Courier travels in both directions.

Interop: PROGRAM 1000000 VERSION 2 =
BEGIN

    Colour: TYPE = {red(0), green(7), blue(65535)};

    Person: TYPE = RECORD [name: STRING, age: CARDINAL, flags: ARRAY 2 OF BOOLEAN];

    Kind: TYPE = {point(0), circle(1), disc(2), polygon(9)};

    -- Two designators share an arm.
    Shape: TYPE = CHOICE Kind OF {
        point => RECORD [],
        circle, disc => RECORD [radius: LONG CARDINAL],
        polygon => SEQUENCE OF INTEGER
    };

    Answer: TYPE = CHOICE OF {nothing(3) => RECORD [], number(4) => LONG INTEGER, text(5) => STRING};

    Tree: TYPE = RECORD [label: CARDINAL, children: SEQUENCE OF Tree];

    List: TYPE = CHOICE OF {nil(0) => RECORD [], node(1) => RECORD [head: CARDINAL, rest: List]};

    StreamOfCardinal: TYPE = CHOICE OF {
        nextSegment(0) => RECORD [segment: SEQUENCE OF CARDINAL, restOfStream: StreamOfCardinal],
        lastSegment(1) => SEQUENCE OF CARDINAL
    };

    Failure: TYPE = {none(0), plain(1), text(2), record(3), undeclared(4)};

    Plain: ERROR = 0;
    Text: ERROR [text: STRING] = 1;
    Detailed: ERROR [person: Person, codes: SEQUENCE OF CARDINAL] = 2;
    Overflow: ERROR = 3;
    DivisionByZero: ERROR [dividend: LONG INTEGER] = 65535;

    Nothing: PROCEDURE = 0;

    EchoBoolean: PROCEDURE [value: BOOLEAN] RETURNS [result: BOOLEAN] = 1;
    EchoCardinal: PROCEDURE [value: CARDINAL] RETURNS [result: CARDINAL] = 2;
    EchoLongCardinal: PROCEDURE [value: LONG CARDINAL] RETURNS [result: LONG CARDINAL] = 3;
    EchoInteger: PROCEDURE [value: INTEGER] RETURNS [result: INTEGER] = 4;
    EchoLongInteger: PROCEDURE [value: LONG INTEGER] RETURNS [result: LONG INTEGER] = 5;
    EchoUnspecified: PROCEDURE [value: UNSPECIFIED] RETURNS [result: UNSPECIFIED] = 6;
    EchoLongUnspecified: PROCEDURE [value: LONG UNSPECIFIED] RETURNS [result: LONG UNSPECIFIED] = 7;
    EchoString: PROCEDURE [value: STRING] RETURNS [result: STRING] = 8;
    EchoColour: PROCEDURE [value: Colour] RETURNS [result: Colour] = 9;
    EchoArray: PROCEDURE [value: ARRAY 3 OF CARDINAL] RETURNS [result: ARRAY 3 OF CARDINAL] = 10;
    EchoSequence: PROCEDURE [value: SEQUENCE OF LONG CARDINAL]
        RETURNS [result: SEQUENCE OF LONG CARDINAL] = 11;
    EchoBounded: PROCEDURE [value: SEQUENCE 4 OF STRING] RETURNS [result: SEQUENCE 4 OF STRING] = 12;
    EchoRecord: PROCEDURE [value: Person] RETURNS [result: Person] = 13;
    EchoEmpties: PROCEDURE [value: SEQUENCE OF RECORD []] RETURNS [result: SEQUENCE OF RECORD []] = 14;
    EchoChoice: PROCEDURE [value: Shape] RETURNS [result: Shape] = 15;
    EchoAnswer: PROCEDURE [value: Answer] RETURNS [result: Answer] = 16;
    EchoTree: PROCEDURE [value: Tree] RETURNS [result: Tree] = 17;
    EchoList: PROCEDURE [value: List] RETURNS [result: List] = 18;
    EchoStream: PROCEDURE [value: StreamOfCardinal] RETURNS [result: StreamOfCardinal] = 19;

    -- The sum must be a LONG INTEGER.
    Add: PROCEDURE [a, b: LONG INTEGER] RETURNS [sum: LONG INTEGER] REPORTS [Overflow] = 40;

    -- Two results. The quotient is rounded toward zero.
    Divide: PROCEDURE [dividend, divisor: LONG INTEGER]
        RETURNS [quotient, remainder: LONG INTEGER]
        REPORTS [DivisionByZero, Overflow] = 41;

    -- Reports the error that is asked for. undeclared raises Overflow, which Fail does not report, so
    -- the call is rejected.
    Fail: PROCEDURE [failure: Failure] REPORTS [Plain, Text, Detailed] = 42;

    -- Returns after the given time.
    Sleep: PROCEDURE [milliseconds: CARDINAL] RETURNS [milliseconds: CARDINAL] = 43;

    -- Has no results, so it is one-way in Cooper's form. Notes returns the last 1000 texts in order.
    Note: PROCEDURE [text: STRING] = 44;
    Notes: PROCEDURE RETURNS [notes: SEQUENCE OF STRING] = 45;

END.
