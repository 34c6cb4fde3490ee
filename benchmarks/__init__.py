"""What it costs to stand in the way: each figure beside the direct connection, in the same run."""
