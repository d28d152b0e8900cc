"""BoTorch's constrained, cost-weighted search: expected improvement x P(the limits hold) / cost of the probe.

The model is SingleTaskGP on log speed over (log2 nodes, one-hot type), fitted at each step as its tutorials do. Same first probes,
same stop as the plain methods: expected improvement below 10 % of the best after at least six probes.
"""
import math
import warnings

import torch
from botorch.acquisition import LogExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Standardize
from gpytorch.mlls import ExactMarginalLogLikelihood

from jobs import probe_cost


def _features(job, deployment):
    types = sorted(job.prices)
    top = math.log2(max(n for _, n in job.speeds))
    return [math.log2(deployment[1]) / max(top, 1)] + [float(deployment[0] == m) for m in types]


def _fit(job, measured, objective):
    x = torch.tensor([_features(job, d) for d in measured], dtype=torch.double)
    y = torch.tensor([[math.log(objective(d, s))] for d, s in measured.items()], dtype=torch.double)
    model = SingleTaskGP(x, y, outcome_transform=Standardize(m=1))
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model, y.max().item()


def search(job, measure, deadline, budget):
    """Returns (chosen deployment or None, its measured speed, hours and USD spent, probes)."""
    torch.manual_seed(0)
    rate = (lambda d, s: s / (job.prices[d[0]] * d[1])) if deadline < math.inf else (lambda d, s: s)
    measured, failed, hours, usd = {}, set(), 0.0, 0.0

    def probe(deployment):
        nonlocal hours, usd
        cost = probe_cost(job, deployment)
        hours, usd = hours + cost[0], usd + cost[1]
        speed = measure(deployment)
        if speed > 0:
            measured[deployment] = speed
        else:
            failed.add(deployment)

    for m in sorted(job.prices, key=lambda m: probe_cost(job, (m, min(n for k, n in job.speeds if k == m)))[1]):
        probe((m, min(n for k, n in job.speeds if k == m)))
    while len(measured) >= 2:
        open_ones = [d for d in job.speeds if d not in measured and d not in failed]
        if not open_ones:
            break
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model, best = _fit(job, measured, rate)
            x = torch.tensor([[_features(job, d)] for d in open_ones], dtype=torch.double)
            with torch.no_grad():
                log_ei = LogExpectedImprovement(model, best_f=best)(x)
                posterior = model.posterior(x)
                mean, sd = posterior.mean.flatten(), posterior.variance.flatten().clamp_min(1e-12).sqrt()
        # The speed that the limits ask of each candidate, on the model's scale.
        need = torch.tensor([math.log(max(rate(d, job.samples / 3600 / deadline) if deadline < math.inf else 1e-300,
                                          rate(d, job.samples / 3600 * job.prices[d[0]] * d[1] / budget))) for d in open_ones])
        feasible = torch.distributions.Normal(0.0, 1.0).cdf((mean - need) / sd)
        cost = torch.tensor([probe_cost(job, d)[1] for d in open_ones])
        score = log_ei + torch.log(feasible.clamp_min(1e-12)) - torch.log(cost)
        at = int(score.argmax())
        if len(measured) + len(failed) >= 6 and float((log_ei.exp() * feasible)[at]) < 0.1:
            break
        probe(open_ones[at])
    fitting = [(job.training(d, s), d, s) for d, s in measured.items()]
    fitting = [(t, d, s) for t, d, s in fitting if t[0] <= deadline and t[1] <= budget]
    if not fitting:
        return None, 0.0, hours, usd, len(measured) + len(failed)
    _, chosen, speed = min(fitting, key=lambda f: f[0][1] if deadline < math.inf else f[0][0])
    return chosen, speed, hours, usd, len(measured) + len(failed)
