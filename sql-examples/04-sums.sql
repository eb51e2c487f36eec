-- Sums and averages of encrypted columns, grouped by a clear one: four encrypted rows for the owner to decrypt.
SELECT region, enc_sum(cost) AS total, enc_avg(cost) AS average, enc_count(smoker) AS asked, count(*) > 0 AS any
FROM patients GROUP BY region ORDER BY region;

COPY (
    SELECT region, enc_sum(cost) AS total, enc_avg(cost) AS average, enc_count(smoker) AS asked, count(*) AS patients
    FROM patients GROUP BY region
) TO 'sums.veil.parquet';
