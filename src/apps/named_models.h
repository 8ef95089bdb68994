#pragma once
#include <string>

#include "apps/job_connection.h"
#include "options/option_parser.h"

namespace tessera {

// Fetches the models and the tokenizer that the options of a training run name on servers
// (hub/remote_model.h), and puts the local directories in the place of the names. The first rank
// of each host fetches, in what rank 0 takes the names for; the others wait for it. What the run
// does not need is left alone: weights where it goes on from a checkpoint, a tokenizer where that
// is in the checkpoint or nothing is to be tokenized. A checkpoint's model and tokenizer are taken
// at the commit that they had.
//
// UserError, on all ranks, that says what to do. CommError as Control::exchange().
void fetch_named_models(ParsedOptions& parsed, const JobConnection& job);

// The same where nothing will be run: the configuration alone, which is soon there or an error.
void fetch_named_configuration(ParsedOptions& parsed);

// The same for a --tokenizer of another command: what load_tokenizer() takes.
std::string fetch_named_tokenizer(const std::string& name, const RunConfig& config);

}  // namespace tessera
