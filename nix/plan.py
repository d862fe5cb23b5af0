"""What the default run compiles where there is no GPU, as JSON: architectures by toolkit and kernel."""

import json
import os

import yaml

from gemmrepro.core.paths import ROOT
from gemmrepro.host.plan import Plan

os.chdir(ROOT)  # a plan names recordings relative to it
config = yaml.safe_load((ROOT / "config" / "config.yaml").read_text())
os.environ["GEMMREPRO_TUNED"] = config["tuned_gpu"]
plan = Plan(config, "recorded", None)
compiled = {
    toolkit: {
        kernel.id: ",".join(plan.architectures(kernel, toolkit))
        for kernel in plan.kernels.values()
        if toolkit in plan.toolkits_of(kernel)
    }
    for toolkit in plan.toolkits
}
print(json.dumps({"tuned": config["tuned_gpu"], "kernels": compiled}))
