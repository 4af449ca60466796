Storage: PROGRAM 710 VERSION 5 =
BEGIN
    DEPENDS UPON
        Directory (702) VERSION 3,
        Passport (714) VERSION 1;

    AttributeType: TYPE = LONG CARDINAL;
    Selection: TYPE = SEQUENCE OF AttributeType;
    Flags: TYPE = ARRAY 2 OF BOOLEAN;
    Place: TYPE = CHOICE OF {
        all(0), here(1) => RECORD [],
        file(2) => RECORD [name: Directory.Name, version: CARDINAL],
        page(3) => CARDINAL};
    Range: TYPE = RECORD [first, last: LONG CARDINAL, access: Access];
    Access: TYPE = {read(0), write(1), none(65535)};
    Lookup: TYPE = PROCEDURE [name: Directory.Name] RETURNS [handle: Handle] REPORTS [Failed];
    Handle: TYPE = ARRAY 2 OF UNSPECIFIED;
    Problem: TYPE = ERROR [problem: Access];

    -- Constants of every kind.
    checksum: AttributeType = 0;
    name: AttributeType = checksum;
    allTypes: Selection = [37777777777B, name];
    someTypes: SEQUENCE 3 OF LONG CARDINAL = [1, checksum];
    nullHandle: Handle = [0, 0FFFFH];
    bothFlags: Flags = [TRUE, FALSE];
    greeting: STRING = "say ""hello"" \ twice";
    sameGreeting: STRING = greeting;
    everywhere: Place = all[];
    pageOne: Place = page 1;
    report: Place = file [name: [domain: "A", local: greeting], version: 3];
    whole: Range = [first: 0, last: 0FFFFFFFFH, access: read];
    wholeAgain: Range = [0, 0FFFFFFFFH, none];
    access: Access = whole1;
    whole1: Access = write;
    theAgent: Passport.Pass = Passport.anyone;
    raw: UNSPECIFIED = -1;
    lookupNumber: CARDINAL = 17;

    Failed: Problem = 0;
    Open: Lookup = 3;
    OpenAgain: Lookup = lookupNumber;
    Choose: PROCEDURE [place: Place, self, type, Type: CARDINAL, limits: SEQUENCE 5 OF CARDINAL]
        RETURNS [found: SEQUENCE 5 OF Range] REPORTS [Failed, Directory.Busy] = 4;
END.
