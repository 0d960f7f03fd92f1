#include "megalith/Request.h"
#include "megalith/Text/Text.h"

using namespace megalith;

RequestId RequestId::ofInteger(std::string digits) {
  RequestId id(std::move(digits));
  id.isInteger = true;
  return id;
}

std::string RequestId::json() const { return isInteger ? text : text::json(text); }
