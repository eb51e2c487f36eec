-- Rows that share what identifies people with at least nine others. Names go, birthdays become the mean of their class, and diagnoses the
-- lowest heading that all of the class have; costs stay. The engine sees none of it, nor who is in which class. The key holder sees none of it
-- either, since distances are compared exactly, which takes its time: so these are 200 patients.
CREATE TABLE anon AS SELECT * FROM k_anonymize(
    (SELECT * FROM patients WHERE region = 'north' LIMIT 200),
    k => 10, quasi => (born, sex, zip, diagnosis), drop => (name, smoker, admitted), rounds => 3, seed => 1
);

SELECT * FROM anon LIMIT 2;

-- No set of columns identifies fewer than ten any more (rows that were suppressed, with suppress => 0.02, would be one more class).
SELECT * FROM identifiers(anon, k => 10, columns => (born, sex, zip, diagnosis));

-- What became of it. EXPLAIN in front of the query tells beforehand what it may cost, and who learns what.
SELECT rows, k, clusters, small_clusters, suppressed_rows, classes FROM k_anonymize_summary();

COPY (SELECT * FROM anon) TO 'anon.veil.parquet';
