"""Airflow: every night what landed is sealed, indexed and checked; once a week files leave old keys.

Each task may run again; `bloomseal index build` makes the index, once. Keys come from the worker's own
environment: Airflow's web pages show what templates become.
"""

from datetime import datetime

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

START = datetime(2026, 1, 1)
POLICY = "--policy policy.toml --table customers"
DAY = "lake/customers/{{ ds }}.parquet --table-root lake/customers"
SEAL = f"bloomseal write landing/{{{{ ds }}}}/*.csv {DAY} {POLICY}"
INDEX = f"bloomseal index update lake/customers --column ssn {POLICY}"
GATE = "bloomseal audit lake/customers --policy policy.toml"
REWRAP = f"bloomseal rewrap lake/customers --restart {POLICY}"

with DAG("customers", schedule="@daily", start_date=START, max_active_runs=1):
    seal = BashOperator(task_id="seal", bash_command=SEAL, retries=2)
    index = BashOperator(task_id="index", bash_command=INDEX, retries=2)
    gate = BashOperator(task_id="gate", bash_command=GATE)
    seal >> index >> gate

with DAG("customers_keys", schedule="@weekly", start_date=START, max_active_runs=1):
    BashOperator(task_id="rewrap", bash_command=REWRAP, retries=2)
