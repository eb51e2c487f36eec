-- Is it safe, is it useful? First the patients as they are: how many look like nobody else, and which column tells most about them. The engine
-- learns how large the classes of people who look alike are, and nothing else; so does the key holder.
SELECT measure, round(value, 3) AS value FROM risk((SELECT * FROM patients WHERE region = 'north'), quasi => (sex, zip, diagnosis), population => 50000)
WHERE column_name IS NULL;

SELECT column_name, round(value, 3) AS contribution FROM risk((SELECT * FROM patients WHERE region = 'north'), quasi => (sex, zip, diagnosis))
WHERE measure = 'contribution' ORDER BY contribution DESC;

-- Then 200 of them as they are published. The quasi-identifiers are those that were anonymised.
CREATE TABLE study AS SELECT * FROM patients WHERE region = 'north' LIMIT 200;

CREATE TABLE anon AS SELECT * FROM k_anonymize(
    study,
    k => 25, quasi => (born, sex, zip, diagnosis), drop => (name, smoker, admitted), rounds => 3, suppress => 0.02, seed => 1
);

SELECT measure, round(value, 3) AS value, meaning FROM risk(anon, population => 50000, contributions => false);

SELECT size, classes FROM class_sizes(anon) ORDER BY size LIMIT 3;

-- What the table has lost, in all and by column. With ranges it is also told how wide classes are, which takes exact comparisons: EXPLAIN tells
-- what that costs.
SELECT measure, column_name, round(value, 3) AS value FROM utility(study, anon, k => 25, ranges => true);

-- The same for several k, to choose from.
SELECT k, classes, round(prosecutor_average, 3) AS risk, round(precision_loss, 3) AS precision_loss, round(information_loss, 1) AS information_loss
FROM sweep((SELECT * FROM patients WHERE region = 'north' LIMIT 100), quasi => (born, zip, diagnosis), k => (5, 25), rounds => 2, seed => 1);

SELECT function, rows, note FROM assess_summary();
