#include "trireme/codec/codec.h"

#include "trireme/base/error.h"

namespace trireme::codec {

void CodecSet::add(CodecPtr codec) {
  std::string key(codec->name());
  TRIREME_CHECK(codecs_.emplace(std::move(key), codec).second, "codec '", codec->name(), "' added twice");
}

CodecPtr CodecSet::find(const std::string& name) const {
  const auto found = codecs_.find(name);
  if (found != codecs_.end()) return found->second;
  std::vector<std::string> known;
  std::string all;
  for (const auto& [key, codec] : codecs_) {
    known.push_back(key);
    all += (all.empty() ? "" : ", ") + key;
  }
  const std::string near = nearest(name, known);
  fail(ErrorCode::usage, "unknown codec '", name, "'", near.empty() ? "" : ", did you mean '" + near + "'?",
       " (known: ", all, ")");
}

}  // namespace trireme::codec
