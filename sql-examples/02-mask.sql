-- Names from an encrypted dictionary, dates moved by a month, random zips, costs off by up to ten percent,
-- diagnoses generalised to the root: no value is decrypted on the way.
CREATE VIEW masked AS
SELECT mask_dictionary(name, 'names') AS name,
       mask_shift(born, 30) AS born,
       mask_random(zip, 10000, 99999) AS zip,
       mask_redact(diagnosis) AS diagnosis,
       mask_noise(cost, 0.1) AS cost,
       cost AS true_cost,
       region
FROM patients;

SELECT * FROM masked WHERE region = 'north' LIMIT 3;

-- The file keeps the types, so that the owner can decrypt it:
--   veil decrypt masked.veil.parquet --keys veil-demo/keys/owner.keys -o -
COPY (SELECT * FROM masked WHERE region = 'north') TO 'masked.veil.parquet';
