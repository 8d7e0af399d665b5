// Package doctor looks at what runs depend on and says what is wrong with it: at Slurm and the folder of runs, from where jobs are
// submitted; at the nodes of a job, each by itself, and at their clocks and the network between them. It changes nothing but files that it
// removes, and each of its findings says what to do.
package doctor
