package main

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/usage"
)

func TestParseOptionsReadsEveryOption(t *testing.T) {
	o, err := parseOptions(strings.Fields("--collective all_reduce,reduce-scatter,allreduce --ranks 2,4 --transport tcp -b 1K -e 4M -f 8 "+
		"--quick --launches 9"), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(o.collectives, []string{"allreduce", "reducescatter"}) || !slices.Equal(o.ranks, []int{2, 4}) ||
		!slices.Equal(o.transports, []string{"tcp"}) {
		t.Errorf("%+v", o)
	}
	if o.begin != 1024 || o.end != 4<<20 || o.factor != 8 || o.Launches != 9 || o.budget != 20*time.Millisecond {
		t.Errorf("what is named beside --quick does not stay: %+v", o)
	}
}

// Without options, the benchmark measures everything, seven times: enough for an interval of 95 %.
func TestParseOptionsTakesAllByDefault(t *testing.T) {
	o, err := parseOptions(nil, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(o.collectives, knownCollectives) || !slices.Equal(o.ranks, []int{2, 4}) || len(o.transports) != 2 ||
		len(o.peers) != 3 || o.Launches != 7 {
		t.Errorf("%+v", o)
	}
	if o, err = parseOptions([]string{"--quick"}, io.Discard); err != nil || o.Launches != 3 || o.end != 4<<20 ||
		len(o.collectives) != len(knownCollectives) {
		t.Errorf("--quick: %+v, %v", o, err)
	}
}

func TestRowSizesFitTheRanks(t *testing.T) {
	o := options{begin: 4, end: 64, factor: 4}
	for s, want := range map[setting][]int64{
		{"allreduce", "shm", 3}: {4, 16, 64}, {"allgather", "shm", 3}: {12, 60}, {"alltoall", "tcp", 4}: {16, 64},
		{"barrier", "shm", 3}: {0}, {"startup", "shm", 3}: {0},
	} {
		if got := o.rowSizes(s); !slices.Equal(got, want) {
			t.Errorf("%v: %v, want %v", s, got, want)
		}
	}
}

func TestParseOptionsRefusesBadValues(t *testing.T) {
	for args, want := range map[string]string{
		"--collective allredoce":     `-collective: "allredoce" is not one of allreduce,`,
		"--transport shm,ib":         `-transport: "ib" is not one of shm, tcp`,
		"--ranks 1":                  `-ranks: "1" is not a number from 2 to 256`,
		"-b 2":                       `-b: "2" is not a size from 4 to 4G bytes, such as 64K`,
		"-e 5G":                      `-e: "5G" is not a size`,
		"-b 64K -e 4":                "-e 4 is smaller than -b 65536",
		"--collective alltoall -e 4": "-e 4 is too small for an element of each rank",
		"-f 1":                       "-f is 1; it must be 2 to 1048576",
		"--budget 1us":               "-budget is 1\u00b5s; it must be 1ms to 1m",
		"--peers nccl":               `-peers: "nccl" is not one of`,
	} {
		_, err := parseOptions(strings.Fields(args), io.Discard)
		var misused *usage.Error
		if !errors.As(err, &misused) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}

func TestSettingsAreAllThatGoTogether(t *testing.T) {
	o := options{begin: 4, end: 4, factor: 4, collectives: []string{"allreduce", "alltoall", "pingpong"},
		transports: []string{"shm", "tcp"}, ranks: []int{2, 4}}
	var got []string
	for _, s := range o.settings() {
		got = append(got, s.String())
	}
	want := []string{
		"allreduce, shm, 2 ranks", "allreduce, shm, 4 ranks", "allreduce, tcp, 2 ranks", "allreduce, tcp, 4 ranks",
		"pingpong, shm, 2 ranks", "pingpong, tcp, 2 ranks",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
