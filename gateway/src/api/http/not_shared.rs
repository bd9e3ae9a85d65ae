//! `/v1/share` of a gateway that was built without sharing.

use axum::Json;
use axum::http::Uri;
use serde::Serialize;

use super::parameters::Parameters;
use super::problem::Problem;

#[derive(Debug, Serialize)]
pub(super) struct ShareDocument {
    configured: bool,
}

pub(super) async fn share(uri: Uri) -> Result<Json<ShareDocument>, Problem> {
    Parameters::parse(&uri, &[])?;
    Ok(Json(ShareDocument { configured: false }))
}
