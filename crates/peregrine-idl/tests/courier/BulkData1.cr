BulkData: PROGRAM 0 VERSION 1 =
BEGIN
    Segment: TYPE = CHOICE OF {
        more(0) => RECORD [bytes: SEQUENCE OF UNSPECIFIED, rest: Segment],
        last(1) => SEQUENCE OF UNSPECIFIED};
    Descriptor: TYPE = CHOICE OF {
        null(0), immediate(1) => RECORD [],
        passive(2), active(3) => RECORD [network: LONG UNSPECIFIED, host: ARRAY 3 OF UNSPECIFIED]};
    Source: TYPE = Descriptor;
    Sink: TYPE = Descriptor;
END.
