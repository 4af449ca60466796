Passport: PROGRAM 714 VERSION 1 =
BEGIN
    DEPENDS UPON Directory (702) VERSION 3;
    Pass: TYPE = RECORD [owner: Directory.Name, level: Level, bits: SEQUENCE OF UNSPECIFIED];
    Level: TYPE = {weak(0), strong(1)};
    Problem: TYPE = {expired(0), forged(1)};
    Unused: TYPE = RECORD [nowhere: LONG CARDINAL];
    anyone: Pass = [owner: [domain, local: ""], level: weak, bits: []];
END.
