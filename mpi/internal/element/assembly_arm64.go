package element

// assembly is for NEON, which every arm64 CPU that runs Go has.
func assembly() routineSet { return routines }
