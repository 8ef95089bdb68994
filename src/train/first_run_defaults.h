#pragma once
#include <cstdint>

#include "options/option_parser.h"

namespace tessera {

// What a run takes of whose model and tokenizer nothing is said: a small Llama and a tokenizer that
// suit its text. By the bytes of training text, unpacked:
//
//   below      vocabulary  width  layers  heads  context  rate
//   300 KB            512    128       4    4/2      128  3e-3
//   3 MB             4096    192       4      3      256  3e-3
//   30 MB            8192    256       6    4/2      256  1.5e-3
//   300 MB          16384    384       8    6/3      512  1e-3
//   3 GB            32768    512       8    8/4     1024  8e-4
//   more            32768    768      12   12/4     1024  6e-4
//
// and, in windows of that context, steps of 8 windows over all ranks. docs/data.md says the rest,
// and what was measured.
struct FirstRunShape {
  int64_t text_bytes;  // for texts shorter than this; the last for any
  int64_t vocab_size, hidden_width, num_layers, num_heads, num_key_value_heads, intermediate_size;
  int64_t context;
  double lr;
};
const FirstRunShape& first_run_shape(int64_t text_bytes);

// Where training is to begin or go on: what is needed beside the options.
struct FirstRunPlace {
  int64_t ranks = 1;  // that share a step
  // Checkpoints or directories of them; of the newest one everything is taken.
  std::vector<std::string> checkpoints;
};

// Chooses options that are not given, and says so in one of parsed.notes: as many options as make
// the same run if they are given. Only of a run that names text on this machine by --dataset, and
// no tokenizer, family, shape, preset, configuration or pretrained weights: the argument lists of
// other programs keep the defaults of options.md. Chosen options count as given. Where there is a
// checkpoint to go on from, they are those of its run, whatever has become of the text since.
// UserError: the text cannot be read or is too little to train on.
void choose_for_text(ParsedOptions& parsed, const FirstRunPlace& place);

// Where the training data are files of ids with a meta.pkl beside them (hub/tokenizer_files.h), and
// no configuration describes the model, --vocab_size that is not given becomes the vocab_size
// there, of several the largest, and counts as given; a note says so. A warning where one cannot be
// read. UserError: a given --vocab_size is smaller.
void take_vocabulary(ParsedOptions& parsed);

}  // namespace tessera
