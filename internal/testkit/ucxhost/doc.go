// Package ucxhost has tests go by UCX on a machine without a network card for it: over UCX's TCP on loopback.
package ucxhost
