package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// testSlurmContainer runs ranks in containers on the cluster: Charliecloud on two nodes, and Podman on one, since its storage is local to a
// node.
func testSlurmContainer(t *testing.T, c *cluster) {
	rig := newContainerRig(t, t.TempDir())
	rig.node = func(args ...string) (string, []string) {
		return c.script, append([]string{"exec", clusterNodes[0]}, args...)
	}
	c.env = append(c.env, rig.env...)
	for runtime, slurm := range map[string]string{"charliecloud": "nodes = 2", "podman": `nodelist = "n1"`} {
		path := c.commandJob(runtime, slurm, "2", "sh", "-c", `echo "rank $RANK of $WORLD_SIZE in $PWD"`)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		c.write(runtime+".toml", string(text)+rig.table(runtime))
		s := c.submit(runtime + ".toml")
		job := s.await()
		out := c.ok("ddpbatch", "logs", s.id).stdout
		world := map[string]int{"charliecloud": 4, "podman": 2}[runtime]
		if job["ExitCode"] != "0:0" || strings.Count(out, fmt.Sprintf(" of %d in "+c.dir, world)) != world {
			t.Errorf("%s: the job ended with %s:\n%s", runtime, job["ExitCode"], out)
		}
	}
	c.write("nothing.toml", "schema = 1\nname = \"nothing\"\n[launch]\ncommand = [\"true\"]\n[container]\nruntime = "+
		"\"charliecloud\"\nimage = \"no-image\"\n")
	if out := c.exits(2, "ddpbatch", "submit", "nothing.toml"); !strings.Contains(out.stderr, "container.image: stat ") {
		t.Errorf("an image that is not there: %v", out)
	}
}
