"""The jobs of the bench: measured tables (data/deploy) and a synthetic space with large, costly clusters."""
import csv
import random
from dataclasses import dataclass
from math import exp, inf
from pathlib import Path

DATA = Path(__file__).resolve().parents[3] / "data" / "deploy"
LEAST_USD = {"trimtuner": 5.0, "scout": 25.0, "large": 20.0}  # cheapest training of a job: sets its length


@dataclass
class Job:
    space: str
    name: str
    speeds: dict   # (instance, nodes) -> samples/s; 0: it fails
    noise: dict    # (instance, nodes) -> relative standard deviation of one measurement
    prices: dict   # instance -> USD per hour
    samples: float = 0.0

    def __post_init__(self):
        usd_per_sample = min(self.prices[m] * n / y / 3600 for (m, n), y in self.speeds.items() if y > 0)
        self.samples = LEAST_USD[self.space] / usd_per_sample
        self.least_usd = LEAST_USD[self.space]
        self.least_hours = self.samples / 3600 / max(self.speeds.values())

    def training(self, deployment, speed=None):
        hours = self.samples / 3600 / (speed or self.speeds[deployment])
        return hours, hours * self.prices[deployment[0]] * deployment[1]

    def offers_csv(self):
        largest = {m: max(n for (k, n) in self.speeds if k == m) for m in self.prices}
        return "instance,usd_per_hour,max_nodes\n" + "".join(f"{m},{p},{largest[m]}\n" for m, p in self.prices.items())


def minutes(nodes):
    return 10 + (nodes - 1) // 3


def probe_cost(job, deployment):
    hours = minutes(deployment[1]) / 60
    return hours, hours * job.prices[deployment[0]] * deployment[1]


def _prices(types):
    with open(DATA / "prices.csv", encoding="utf-8") as file:
        all_prices = {row["instance_type"]: float(row["usd_per_hour"]) for row in csv.DictReader(file)}
    return {m: all_prices[m] for m in types}


def trimtuner():
    """Every model x learning rate x batch x mode with a full grid of 24 deployments, on all 60,000 samples."""
    tables = {}
    with open(DATA / "trimtuner_tf_aws_t2.csv", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["training_set_size"] != "60000":
                continue
            key = "-".join(row[k] for k in ("model", "learning_rate", "batch_size", "synchronism"))
            seconds = float(row["training_time_s"])
            speed = float(row["total_iterations"]) * float(row["batch_size"]) / seconds
            spread = float(row["training_time_sd_s"]) / seconds
            tables.setdefault(key, {})[row["vm_flavor"], int(row["n_workers"])] = (speed, spread)
    prices = _prices(["t2.small", "t2.medium", "t2.xlarge", "t2.2xlarge"])
    return [Job("trimtuner", key, {d: v[0] for d, v in table.items()}, {d: v[1] for d, v in table.items()}, prices)
            for key, table in sorted(tables.items()) if len(table) == 24]


def scout():
    """18 workloads x 69 deployments; runs that did not complete are probes that fail. Single runs: noise of 3 % is assumed."""
    tables = {}
    with open(DATA / "scout_multinode_aws.csv", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            key = "-".join(row[k] for k in ("workload", "framework", "datasize"))
            speed = 1000 / float(row["elapsed_s"]) if row["completed"] == "True" else 0.0
            tables.setdefault(key, {})[row["instance_type"], int(row["instance_count"])] = speed
    types = [f"{family}.{size}" for family in ("c4", "m4", "r4") for size in ("large", "xlarge", "2xlarge")]
    prices = _prices(types)
    return [Job("scout", key, table, dict.fromkeys(table, 0.03), prices) for key, table in sorted(tables.items())]


def large(count=12):
    """Synthetic: real prices, counts to 50 or 100, curves that rise and then fall, y = b n / (1 + (n / p)^2), as the
    measured ones do. Per job and type: speed of one node ~ price with a log-normal factor of 0.5, peak p log-uniform in
    [4, 60]; 3 % noise. The first types are those of the IPDPS 2020 paper."""
    prices = _prices(["c5.xlarge", "c5.4xlarge", "c5n.xlarge", "c5n.4xlarge", "c4.4xlarge", "p2.xlarge", "p2.8xlarge", "p3.2xlarge",
                      "p3.16xlarge"])
    jobs = []
    for number in range(count):
        rng = random.Random(number)
        speeds = {}
        for m, price in prices.items():
            base, peak = 100 * price * exp(rng.gauss(0, 0.5)), 4 * 15 ** rng.random()
            counts = [1, 2, 4, 8, 12, 16, 20, 25, 30, 40, 50] + ([75, 100] if m.startswith("c") else [])
            for n in counts:
                speeds[m, n] = base * n / (1 + (n / peak) ** 2) * exp(rng.gauss(0, 0.02))
        jobs.append(Job("large", f"synthetic-{number}", speeds, dict.fromkeys(speeds, 0.03), prices))
    return jobs


def oracle(job, deadline=inf, budget=inf, first=(0.0, 0.0)):
    """The best (hours, usd) within the limits when everything is known; `first` is spent before. None: nothing fits."""
    money_counts = deadline < inf
    fitting = []
    for deployment, speed in job.speeds.items():
        if speed > 0:
            hours, usd = (a + b for a, b in zip(job.training(deployment), first))
            if hours <= deadline and usd <= budget:
                fitting.append((usd if money_counts else hours, hours, usd))
    return min(fitting)[1:] if fitting else None


def first_probes(job):
    """What the smallest count of each type costs."""
    smallest = {m: min(n for k, n in job.speeds if k == m) for m in job.prices}
    costs = [probe_cost(job, d) for d in smallest.items()]
    return sum(c[0] for c in costs), sum(c[1] for c in costs)


def feasible_first(job, deadline=inf, budget=inf):
    """Did the initial design hold a deployment that meets the limits after paying for it?"""
    first = first_probes(job)
    for m in job.prices:
        d = (m, min(n for k, n in job.speeds if k == m))
        if job.speeds[d] > 0:
            hours, usd = job.training(d)
            if hours + first[0] <= deadline and usd + first[1] <= budget:
                return True
    return False
