#include "trireme/codec/codec.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/codec/built_in.h"

namespace trireme::codec {

std::string_view name(Payload payload) {
  switch (payload) {
    case Payload::summable:
      return "summable";
    case Payload::two_phase:
      return "two_phase";
    case Payload::gather_only:
      return "gather_only";
  }
  return "unknown";
}

void CodecSet::add(CodecKind kind) {
  std::string key = kind.name;
  TRIREME_CHECK(kinds_.emplace(key, std::move(kind)).second, "codec '", key, "' added twice");
}

const CodecKind& CodecSet::find(const std::string& name) const {
  const auto found = kinds_.find(name);
  if (found != kinds_.end()) return found->second;
  std::vector<std::string> known;
  std::string all;
  for (const auto& [key, kind] : kinds_) {
    known.push_back(key);
    all += (all.empty() ? "" : ", ") + key;
  }
  const std::string near = nearest(name, known);
  fail(ErrorCode::usage, "unknown codec '", name, "'", near.empty() ? "" : ", did you mean '" + near + "'?",
       " (known: ", all, ")");
}

CodecPtr CodecSet::make(const std::string& name, const OptionTable& options, const std::string& where) const {
  OptionList list;
  const auto finish = find(name).open(list);
  list.read_table(options, cat(where, " of ", name));
  return finish();
}

CodecSet codecs_with(const kernels::Kernels& k) {
  CodecSet set;
  set.add(none_kind());
  for (const auto& group : {cast_kinds(k), scaled_kinds(k), random_kinds(k), threshold_kinds(k),
                            sparse_kinds(k), linear_kinds()}) {
    for (const CodecKind& kind : group) set.add(kind);
  }
  return set;
}

CodecSet built_in_codecs() {
  return codecs_with(kernels::fastest());
}

namespace {

// Jobs are independent, so who does which does not change a byte.
void for_each_job(size_t jobs, int threads, const std::function<void(size_t)>& body) {
  std::atomic<size_t> next = 0;
  std::exception_ptr error;
  std::atomic<bool> failed = false;
  const auto work = [&] {
    for (size_t i = next++; i < jobs && !failed; i = next++) {
      try {
        body(i);
      } catch (...) {
        if (!failed.exchange(true)) error = std::current_exception();
      }
    }
  };
  std::vector<std::thread> others;
  for (size_t t = 1; t < std::min<size_t>(static_cast<size_t>(std::max(threads, 1)), jobs); ++t)
    others.emplace_back(work);
  work();
  for (auto& t : others) t.join();
  if (error) std::rethrow_exception(error);
}

}  // namespace

void encode_all(const Codec& codec, std::span<EncodeJob> jobs, int threads) {
  for_each_job(jobs.size(), threads, [&](size_t i) {
    EncodeJob& job = jobs[i];
    job.used = codec.encode(job.in, job.wire, job.call, job.state);
  });
}

void decode_all(const Codec& codec, std::span<const DecodeJob> jobs, int threads) {
  for_each_job(jobs.size(), threads, [&](size_t i) {
    const DecodeJob& job = jobs[i];
    job.add ? codec.decode_add(job.wire, job.out) : codec.decode(job.wire, job.out);
  });
}

}  // namespace trireme::codec
