"""Home Assistant itself, with MQTT and the probe alone. Its own Python runs this, with a folder."""

import sys

from homeassistant import bootstrap, runner

for group in (
    bootstrap.CRITICAL_INTEGRATIONS, bootstrap.DEFAULT_INTEGRATIONS, bootstrap.FRONTEND_INTEGRATIONS,
    bootstrap.STAGE_1_INTEGRATIONS,
):  # fmt: skip
    group.clear()  # the page, and what is found in the network: they need packages of their own

if __name__ == "__main__":
    sys.exit(runner.run(runner.RuntimeConfig(config_dir=sys.argv[1], skip_pip=True, verbose=False)))
