// Package tensorboard writes TensorBoard's event files: curves of numbers by name and step.
//
// A file is a series of TFRecords (tensorflow/core/lib/io/record_writer.h): the data's length, its checksum, the data, the
// data's checksum; the data is an Event (tensorflow/core/util/event.proto) in protobuf's wire format, of which only
// what a scalar needs is written.
package tensorboard
