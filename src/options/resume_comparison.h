#pragma once
#include <string>
#include <vector>

#include "options/run_record.h"

namespace tessera {

// What a resumed run computes otherwise than the run that wrote the checkpoint. Each option says in
// its row (OnResume) what a change of it means; these are the changes of the kinds that are warned
// about. `now` is the record of the resumed run before it has taken anything from the checkpoint.

// "--beta2 was 0.95 and is 0.9": options that change what is computed, the number of ranks that
// share a step, and the name of the tokenizer where that is all that an old checkpoint has.
std::vector<std::string> changed_options(const RunRecord& saved, const RunRecord& now);

// "--lr 0.5: the checkpoint has 0.01": options of the schedule, which goes on as the checkpoint
// says. `saved.schedule` may differ from what `saved.options` asked for, if that was ignored
// before.
std::vector<std::string> ignored_options(const RunRecord& saved, const RunRecord& now);

// "--dataset was a.txt and is b.txt: 1200 training tokens there, 1300 in this run": the training
// text, by what is in it where the checkpoint says so, else by the names of its files; "" if it is
// the same.
std::string changed_text(const RunRecord& saved, const RunRecord& now);

}  // namespace tessera
