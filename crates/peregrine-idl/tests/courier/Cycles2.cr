-- Types that contain each other.
Cycles: PROGRAM 720 VERSION 2 =
BEGIN
    -- A tree.
    Node: TYPE = CHOICE OF {
        leaf(0) => CARDINAL,
        pair(1) => RECORD [left, right: Node],
        many(2) => Nodes,
        named(3) => Named};

    Named: TYPE = RECORD [name: STRING, of: Node, others: Names];
    Names: TYPE = SEQUENCE 10 OF Named;
    Nodes: TYPE = SEQUENCE OF Nodes;

    Cut: ERROR [at: Node, rest: Names] = 1;
    Grow: PROCEDURE [from: Node] RETURNS [to: Named, cut: Nodes] REPORTS [Cut] = 0;
END.
