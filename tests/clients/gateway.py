"""Reads a query through a gateway with the clients that others use, and compares what they get with a CSV file.

ADBC's Flight SQL driver and pyarrow.flight must both give the same names, types, values and NULLs. Ends with 1 if they do not.
"""

import argparse
import csv
import datetime
import sys

import adbc_driver_flightsql.dbapi as flightsql
import pyarrow
import pyarrow.flight as flight


def through_adbc(url, sql):
    """As any program that speaks Python's database interface."""
    with flightsql.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetch_arrow_table()


def through_flight(url, sql):
    """As a program that knows Flight and no SQL: the statement is the command."""
    with flight.connect(url) as client:
        info = client.get_flight_info(flight.FlightDescriptor.for_command(sql.encode()))
        tables = [client.do_get(endpoint.ticket).read_all() for endpoint in info.endpoints]
        table = pyarrow.concat_tables(tables)
        if not table.schema.equals(info.schema):
            raise ValueError(f"promised {info.schema}, and {table.schema} came")
        return table


def text(value):
    """A value as the CSV file has it; nothing if it is NULL."""
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case datetime.datetime():
            return value.isoformat()
        case _:
            return str(value)


def differences(table, names, types, rows):
    """What is not as expected, a sentence each."""
    if table.column_names != names:
        yield f"columns are {table.column_names}, expected {names}"
        return
    for field in table.schema:
        expected = types.get(field.name)
        if expected is not None and str(field.type) != expected:
            yield f"{field.name} is {field.type}, expected {expected}"
    if table.num_rows != len(rows):
        yield f"{table.num_rows} rows, expected {len(rows)}"
        return
    for name, column in zip(names, zip(*rows)):
        found = [text(value) for value in table[name].to_pylist()]
        for row, (value, expected) in enumerate(zip(found, column)):
            if value != expected:
                yield f"{name}, row {row + 1}: {value!r}, expected {expected!r}"
        nulls = sum(value == "" for value in column)
        if table[name].null_count != nulls:
            yield f"{name}: {table[name].null_count} NULLs, expected {nulls}"


def frame_differences(table, rows):
    """The same as a DataFrame, where pandas is installed."""
    try:
        import pandas
    except ImportError:
        return
    frame = table.to_pandas()
    if frame.shape != (len(rows), table.num_columns):
        yield f"the DataFrame is {frame.shape}"
    for name, column in zip(table.column_names, zip(*rows)):
        missing = [bool(pandas.isna(value)) for value in frame[name]]
        if missing != [value == "" for value in column]:
            yield f"{name}: the DataFrame has other missing values"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True, help="the gateway, grpc://HOST:PORT")
    parser.add_argument("--sql", required=True, help="the query")
    parser.add_argument("--expect", required=True, metavar="FILE", help="the expected rows, CSV with a header")
    parser.add_argument("--type", action="append", default=[], metavar="COLUMN=TYPE", help="an expected Arrow type")
    arguments = parser.parse_args()
    with open(arguments.expect, newline="", encoding="utf-8") as file:
        names, *rows = csv.reader(file)
    types = dict(pair.split("=", 1) for pair in arguments.type)
    unknown = sorted(set(types) - set(names))
    if unknown or not rows:
        sys.exit(f"{arguments.expect} has no rows, or no columns {unknown}")

    wrong = False
    for client, read in [("adbc_driver_flightsql", through_adbc), ("pyarrow.flight", through_flight)]:
        table = read(arguments.url, arguments.sql)
        found = [*differences(table, names, types, rows), *frame_differences(table, rows)]
        for difference in found:
            print(f"{client}: {difference}")
        if not found:
            print(f"{client}: {table.num_rows} rows of {table.num_columns} columns, as expected")
        wrong = wrong or bool(found)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
