// Package ucxhost lets tests use UCX on a machine without a network card for it: over UCX's TCP on loopback.
package ucxhost
