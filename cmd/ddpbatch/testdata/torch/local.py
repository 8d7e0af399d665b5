"""A script of before torchrun: its local rank is an argument, in the spelling of torch.distributed.launch's old versions or of its new ones."""
import argparse
import os
import sys

parser = argparse.ArgumentParser()
parser.add_argument("--local-rank", "--local_rank", type=int, default=-1)
parser.add_argument("--lr", type=float)
args = parser.parse_args()
sys.stdout.write("argument %d variable %s lr %g\n" % (args.local_rank, os.environ.get("LOCAL_RANK"), args.lr))
