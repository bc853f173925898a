"""dbt, with dbt-duckdb: a model over a sealed table. What dbt stores is plaintext, so only counts leave the table."""

import os

import bloomseal.duckdb


def model(dbt, session):
    dbt.config(materialized="table")
    policy = os.environ["BLOOMSEAL_POLICY"]
    bloomseal.duckdb.register(session, "customers", os.environ["CUSTOMERS"], columns=["country"], policy=policy)
    return session.sql("select country, count(*) as people from customers group by country")
