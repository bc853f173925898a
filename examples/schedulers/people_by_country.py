"""dbt, with dbt-duckdb: a model over a sealed table. What dbt stores is plaintext, so only counts leave the table."""

import os

import bloomseal as bs
import bloomseal.duckdb


def model(dbt, session):
    dbt.config(materialized="table")
    policy = bs.Policy.load(os.environ["POLICY"]).for_table("customers")
    bloomseal.duckdb.register(session, "customers", os.environ["CUSTOMERS"], columns=["country"], decryption=policy)
    return session.sql("select country, count(*) as people from customers group by country")
