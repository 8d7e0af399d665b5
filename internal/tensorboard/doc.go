// Package tensorboard writes TensorBoard's event files: numbers by name and step.
//
// A file is a series of TFRecords (tensorflow/core/lib/io/record_writer.h): the data's length, its checksum, the data, the data's checksum.
// The data is an Event (tensorflow/core/util/event.proto) in protobuf's wire format, of which only the fields for scalars are written.
package tensorboard
