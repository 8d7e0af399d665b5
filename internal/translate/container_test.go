package translate

import (
	"reflect"
	"testing"

	"ddpbatch/internal/container"
	"ddpbatch/internal/jobfile"
)

// TestContainersComeOut checks the container of the ranks. The expected values follow srun(1), Pyxis's README and the manual of apptainer
// exec.
func TestContainersComeOut(t *testing.T) {
	for line, want := range map[string]container.Config{
		"srun -N2 --container-image=/images/t.sqsh python a.py": {Runtime: "enroot", Image: "/images/t.sqsh"},
		"srun -N2 --container-image ./t.sqsh --container-mounts /d,/s/x:/x:ro python a.py": {Runtime: "enroot", Image: "/base/t.sqsh",
			Mounts: []string{"/d", "/s/x:/x:ro"}},
		"srun --container-image=nvidia/cuda:12.4 python a.py": {Runtime: "enroot", Image: "/base/nvidia+cuda+12.4.sqsh"},
		"apptainer exec t.sif python a.py":                    {Runtime: "apptainer", Image: "/base/t.sif"},
		"srun singularity exec --nv -B /d,/e:/f --contain /t.sif torchrun a.py": {Runtime: "apptainer", Image: "/t.sif",
			Mounts: []string{"/d", "/e:/f"}, Args: []string{"--contain"}},
		"apptainer exec --bind=/d docker://x/y:1 python a.py": {Runtime: "apptainer", Image: "docker://x/y:1",
			Mounts: []string{"/d"}},
		"APPTAINER_BIND=/a,/b:/c apptainer exec t.sif python a.py": {Runtime: "apptainer", Image: "/base/t.sif",
			Mounts: []string{"/a", "/b:/c"}},
		"apptainer exec -B data:/data t.sif python a.py":   {}, // relative to the rank's working directory
		"apptainer exec --overlay o.img t.sif python a.py": {},
		"apptainer run t.sif a.py":                         {}, // the image's own script decides what to do with it
		"apptainer exec $IMAGE python a.py":                {},
		"python a.py":                                      {},
	} {
		result, err := Command(line, Options{Source: "the command line", Name: "x", Base: "/base"})
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		job, _, err := jobfile.Parse("job.toml", "/base", []byte(result.Text), nil)
		if err != nil {
			t.Errorf("%s: %v\n%s", line, err, result.Text)
		} else if !reflect.DeepEqual(job.Container, want) {
			t.Errorf("%s: %+v, want %+v", line, job.Container, want)
		}
	}
}
