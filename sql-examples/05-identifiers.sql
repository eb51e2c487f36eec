-- Which columns identify people: alone (direct) or together (quasi). The engine learns this and no value; the key holder learns how
-- large the classes of equal rows are, in no order.
SELECT * FROM identifiers(patients, k => 5);

-- Of the columns that a release would keep, and how many patients each identifies.
SELECT * FROM identifiers((SELECT born, sex, diagnosis, region FROM patients), k => 5, rows_at_risk => true);

-- What is left to identify after masking: names and birthdays are all alike, and have no tags any more, so their values are compared.
SELECT * FROM identifiers(
    (SELECT mask_redact(name) AS name, mask_redact(born, '1970-01-01') AS born, sex, region FROM patients),
    k => 5, columns => (name, born, sex, region)
);

-- What the searches so far did.
SELECT run, rows, k, method, identifiers, checked, pruned, rounds FROM identifiers_summary();
