"""Airflow: what landed is sealed, indexed and held against the policy every night; once a week files leave old keys.

Each task may run again; the index is built once, by hand (`bloomseal index build`). Keys come from the worker's
own environment: Airflow's web pages show what templates become.
"""

from datetime import datetime

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

POLICY = "--policy policy.toml --table customers"
SEAL = f"bloomseal write landing/{{{{ ds }}}}/*.csv lake/customers/{{{{ ds }}}}.parquet {POLICY} --table-root lake/customers"
INDEX = f"bloomseal index update lake/customers --column ssn {POLICY}"
GATE = "bloomseal audit lake/customers --policy policy.toml"
REWRAP = f"bloomseal rewrap lake/customers --restart {POLICY}"

with DAG("customers", schedule="@daily", start_date=datetime(2026, 1, 1), catchup=False, max_active_runs=1):
    seal = BashOperator(task_id="seal", bash_command=SEAL, retries=2)
    index = BashOperator(task_id="index", bash_command=INDEX, retries=2)
    gate = BashOperator(task_id="gate", bash_command=GATE)
    seal >> index >> gate

with DAG("customers_keys", schedule="@weekly", start_date=datetime(2026, 1, 1), catchup=False, max_active_runs=1):
    BashOperator(task_id="rewrap", bash_command=REWRAP, retries=2)
