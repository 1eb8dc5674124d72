"""What the program's user asked of capture."""

import os

FORCED = os.environ.get("IPEXRUN_GRAPH_MODE") == "dynamo"  # captured at once, and used wherever it is accurate
TRACE = os.environ.get("IPEXRUN_GRAPH_MODE") == "trace"
EXPRESS = not FORCED  # traces may answer before TorchDynamo's graphs do
AT_ONCE = FORCED or os.environ.get("IPEXRUN_GRAPH_WAIT") == "0"
