"""Says where a rank is and what it was given, without PyTorch, whose import takes seconds."""
import os
import sys

place = "/".join(os.environ[name] for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"))
rank = os.environ["RANK"]
sys.stdout.write("rank %s world %s place %s arguments %s\n" % (rank, os.environ["WORLD_SIZE"], place, sys.argv[1:]))
sys.stderr.write("rank %s has a word on standard error\n" % rank)
