-- Finds the accounts of a machine.
Accounts: PROGRAM =
BEGIN
    -- One line of the table of accounts.
    Account: TYPE = RECORD [
        ac_name, ac_secret: STRING,
        ac_user, ac_group: LONG CARDINAL,
        ac_home, ac_shell: STRING];

    -- Finds an account by its name.
    FindByName: PROCEDURE [name: STRING] RETURNS [account: Account] = 0;
    FindByUser: PROCEDURE [user: LONG CARDINAL] RETURNS [account: Account] = 1;
    Count: PROCEDURE RETURNS [count: CARDINAL] = 2;
END.
