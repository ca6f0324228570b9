#!/bin/sh
# What a container of this project runs: the command that it is given, else JupyterLab with the labs.
# PORT is the port that is published, so that the printed address is the one to open.
set -eu

[ "$#" -eq 0 ] || exec "$@"

# What the doctor finds doesn't stop the labs: with a driver that is too old, say, the simulator still judges.
tilelab doctor || echo "Starting all the same: what is marked 'problem' above may not work yet."
exec tilelab lab --ip 0.0.0.0 --port "${PORT:-8888}" --work /home/student/work --labs /opt/tilelang-labs/labs
