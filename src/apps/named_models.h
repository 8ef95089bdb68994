#pragma once
#include <string>

#include "apps/job_connection.h"
#include "options/option_parser.h"

namespace tessera {

// Fetches the models that the options of a training run name on servers (hub/remote_model.h), and
// puts the local directories in the place of the names; before resolve_model(). The first rank of
// each host fetches, in what rank 0 takes the names for; the others wait for it. What the run does
// not need is left alone: weights where it goes on from a checkpoint. A checkpoint's model is taken
// at the commit that it had.
//
// UserError, on all ranks, that says what to do. CommError as Control::exchange().
void fetch_named_models(ParsedOptions& parsed, const JobConnection& job);

// The same for the tokenizer, once it is known that there is a model; unless it is in the
// checkpoint, or nothing is to be tokenized.
void fetch_named_tokenizer(ParsedOptions& parsed, const JobConnection& job);

// The same where nothing will be run: the configuration alone, which is soon there or an error.
void fetch_named_configuration(ParsedOptions& parsed);

// The same for a --tokenizer of another command: what load_tokenizer() takes.
std::string fetch_named_tokenizer(const std::string& name, const RunConfig& config);

}  // namespace tessera
