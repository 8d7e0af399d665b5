package checkpoint

import "runtime/debug"

// program names this build, for the manifest.
func program() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "ddpbatch"
	}
	version := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && (version == "" || version == "(devel)") {
			version = s.Value
		}
	}
	if version == "" {
		return "ddpbatch"
	}
	return "ddpbatch " + version
}
