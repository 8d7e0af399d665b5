# Learning rates of torch.optim.lr_scheduler for schedule_test.go: argument, a list of schedules as JSON;
# printed, a list of rates for each.
import json
import sys

import torch

rates = []
for case in json.loads(sys.argv[1]):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.3, momentum=0.9)
    scheduler = getattr(torch.optim.lr_scheduler, case["Class"])(optimizer, **case["Args"])
    steps = case["Args"].get("total_steps", 100)
    rates.append([])
    for _ in range(steps):
        rates[-1].append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
print(json.dumps(rates))
