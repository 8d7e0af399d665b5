// Package doctor looks at what runs depend on and says what is wrong with it: at Slurm and the folder of runs, from where jobs are
// submitted. It changes nothing but a file that it removes, and each of its findings says what to do.
package doctor
