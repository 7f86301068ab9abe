//! Requests of which as many as needed can be made, and a sample of the latest of them.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use hyper::{HeaderMap, Method, Request, Uri, Version};

use crate::request_body::RequestBody;

/// Warm-up keeps one request in `KEPT_ONE_IN`, and the latest `KEPT` of these.
const KEPT_ONE_IN: u32 = 16;
const KEPT: usize = 64;

/// A request without a body, of which as many as needed can be made.
#[derive(Debug, Clone)]
pub struct Template {
    /// GET, HEAD or OPTIONS.
    pub method: Method,
    /// As the replica's protocol has it.
    pub uri: Uri,
    /// The replica's protocol.
    pub version: Version,
    /// As they are sent on.
    pub headers: HeaderMap,
}

impl Template {
    /// One more request.
    pub fn request(&self) -> Box<Request<RequestBody>> {
        let mut request = Box::new(Request::new(RequestBody::Empty));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.clone();
        *request.version_mut() = self.version;
        *request.headers_mut() = self.headers.clone();
        request
    }
}

/// A sample of the latest requests that may be sent again.
#[derive(Debug, Default)]
pub struct Recent {
    seen: Cell<u32>,
    kept: RefCell<VecDeque<Rc<Template>>>,
}

impl Recent {
    /// Keeps some of the requests that it is offered.
    pub fn offer(&self, template: &Rc<Template>) {
        let seen = self.seen.get();
        self.seen.set(seen.wrapping_add(1));
        if !seen.is_multiple_of(KEPT_ONE_IN) {
            return;
        }
        let mut kept = self.kept.borrow_mut();
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(Rc::clone(template));
    }

    /// Those that are kept, the oldest first.
    pub fn all(&self) -> Vec<Rc<Template>> {
        self.kept.borrow().iter().cloned().collect()
    }
}
